"""Everything around the analyses: the backend that owns the model, components, figures, controls, the server."""
