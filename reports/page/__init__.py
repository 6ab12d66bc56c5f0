"""The report page: all results in one HTML file."""
