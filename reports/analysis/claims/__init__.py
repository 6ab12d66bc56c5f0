"""A paper's claims, and the rules by which numbers decide them."""
