"""Wire formats of phone lines and the bridge from a call to a session."""
