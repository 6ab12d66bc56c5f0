"""Ray: its session, Tune, the worker processes, the devices, and clusters of other people."""
