"""API keys, their scopes and rates."""
