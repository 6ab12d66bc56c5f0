"""Shows that take too long for a test: `make test-cluster` runs them, and each ends with an assertion."""
