"""Papers whose numbers and claims ours are compared with: one folder each."""
