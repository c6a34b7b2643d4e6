"""Takes a coefficient or an initial value, gives the solution of its equation: what is true, in NumPy and SciPy."""
