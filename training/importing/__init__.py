"""Takes a checkpoint of the reference implementation (scaomath/galerkin-transformer), gives one of this project."""
