"""Hyperparameter searches whose outcome depends only on stored records."""
