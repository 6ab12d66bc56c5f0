"""What a sweep has still to do, in which order, how long it takes, and how it is shown."""
