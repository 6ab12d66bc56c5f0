"""The version of all code that can change a result."""

# Increment this whenever a code change can change a result, so that old records are not mixed with new ones.
NUMERICS_VERSION = 3
