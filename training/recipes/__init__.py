"""Recipes: which problem, which samples, which operator, how to train; a TOML file each."""
