"""Training of step operators on a user's trajectories: single steps first, then longer and longer rollouts."""
