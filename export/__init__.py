"""Export of checkpoints as Triton model versions: one graph for every grid, compared with its network."""
