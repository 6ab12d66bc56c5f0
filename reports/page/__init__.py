"""One page with everything."""
