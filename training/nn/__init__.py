"""Layers: the parts that operators and sequence networks are made of."""
