"""The tables of `make bench` that compare networks, training steps and solvers: one table per file."""
