"""Readers of published sample sets."""
