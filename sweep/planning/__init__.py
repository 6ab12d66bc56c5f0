"""The cost of a study, measured on this machine."""
