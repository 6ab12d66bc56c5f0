"""The version of everything that can move a number."""

# Raised whenever code that can move a number changes, so that old records are not taken for new ones.
NUMERICS_VERSION = 3
