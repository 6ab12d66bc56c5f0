"""Perturbations of images: the searches behind the attacks, and the noise from which they start."""
