"""Corpora: one reader or generator per file."""
