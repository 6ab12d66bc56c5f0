"""The records of a store as pandas frames."""
