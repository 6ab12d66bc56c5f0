"""The trials of a study: cells, identities, costs. Does not import Ray."""
