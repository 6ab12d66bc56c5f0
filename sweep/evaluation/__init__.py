"""Attacks on trained models, in small pieces that any process can do."""
