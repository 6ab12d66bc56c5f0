"""A static site of several stores: an index, a page for each study, and what stands behind it to download."""
