"""A campaign of kills, damages and faults against a tiny study: `python -m tests.chaos --minutes N --seed S`."""
