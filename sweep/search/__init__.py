"""Hyperparameter searches whose outcome depends on stored records alone."""
