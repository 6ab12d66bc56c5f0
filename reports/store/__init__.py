"""A store's records as frames."""
