"""The networks of the comparison: one module each, with `build(data, settings)`."""
