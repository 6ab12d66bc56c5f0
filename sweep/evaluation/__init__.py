"""Attacks on trained models, split into small pieces that any process can compute."""
