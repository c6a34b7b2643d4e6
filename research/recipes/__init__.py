"""Recipes MODEL/PRESET.toml of research."""
