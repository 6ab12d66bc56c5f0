"""A study beside a paper's numbers: differences, departures and protocol."""
