"""The records of a store: one frozen class per kind."""
