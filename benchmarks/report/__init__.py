"""The pages of the documentation: their tables, charts and pictures."""
