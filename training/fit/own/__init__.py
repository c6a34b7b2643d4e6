"""Training on a user's data: from a problem file to a run."""
