"""Training runs: a recipe and samples in, a checkpoint out."""
