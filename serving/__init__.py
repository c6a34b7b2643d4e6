"""Takes a model repository and arrays in physical units, gives solution grids: a Triton, and the gateway before it."""
