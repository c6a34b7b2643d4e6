"""Sequence problems: one object per file; other packages add theirs by the entry point `petrov.sequence_problems`."""
