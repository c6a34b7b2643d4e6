"""The equations: samplers, classical solvers, residuals and norms, in NumPy and SciPy."""
