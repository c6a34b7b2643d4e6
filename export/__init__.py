"""Takes a checkpoint, gives the next version of a Triton model: one graph for every grid, proven against the network it came from."""
