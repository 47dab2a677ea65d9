"""Pictures: pure functions from a result, or plain arrays, to a Plotly figure. No Streamlit in here."""
