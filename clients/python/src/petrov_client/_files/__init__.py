"""Local files: those that are read and written, those of trajectories, and those that are not finished yet."""
