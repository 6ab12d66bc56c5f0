"""Explanations of why our cell differs from the paper's: departures, their effects, and commands to measure them."""
