"""Import of checkpoints of the published implementation, scaomath/galerkin-transformer."""
