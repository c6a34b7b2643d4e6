"""Takes a checkpoint, gives a Triton model version: one graph for every grid, proven against its network."""
