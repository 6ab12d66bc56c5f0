"""Things by name: ours, a user's files, and the contracts that they keep."""
