"""The engine that runs a study: Ray Tune schedules its trials, and the store keeps their results."""
