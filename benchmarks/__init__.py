"""The benchmarks: measurements of the project beside its baselines, and the tables of the documentation."""
