"""Why a cell of ours is not the paper's: what departs, what it is worth, what would measure it."""
