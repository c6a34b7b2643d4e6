"""What the worker processes compute: this project, the reference, another network, and classical solvers."""
