"""A static site of several stores: an index, a page for each study, and downloads."""
