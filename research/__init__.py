"""Research beside the main line, joined to it by the entry points in `research.dist-info`, as outside packages are."""
