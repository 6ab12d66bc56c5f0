"""A paper's claims and how numbers decide them."""
