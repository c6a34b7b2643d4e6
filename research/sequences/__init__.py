"""Sequences of tokens with labels: problems, corpora, and networks that classify sequences, pairs or tokens."""
