"""Comparison of this project's numbers with those of the official implementations, recorded in an oracle file.

Every family runs through the functions that training and evaluation call; nothing is implemented twice.
"""
