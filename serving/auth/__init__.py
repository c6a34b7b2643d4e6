"""API keys, scopes and rates."""
