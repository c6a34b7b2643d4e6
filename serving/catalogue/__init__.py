"""The models that are served, with their cards."""
