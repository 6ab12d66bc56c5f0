"""What an attack is counted with: the scorer, suites of attacks, and the images that fooled a model."""
