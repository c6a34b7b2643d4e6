"""The tables of what is known about errors: bounds, estimates, tolerances, families outside the training."""
