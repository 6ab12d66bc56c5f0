"""Ray clusters: sessions, the abilities of nodes, and signs that a cluster can no longer work."""
