"""The PyTorch side of the wrappers, loaded when a training begins."""
