"""Networks and data sets that a study names by file or folder: `my_net.py:build`, `folder:PATH`. Loads no torch."""
