"""Components that Streamlit has no widget for: one folder each with its Python, JavaScript and CSS; no build step."""
