"""How images are perturbed: the searches behind the attacks, and the noise that they start from."""
