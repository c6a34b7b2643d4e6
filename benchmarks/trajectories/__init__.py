"""The comparison on trajectories that another project's solver made: from a file to rollouts, beside FNO."""
