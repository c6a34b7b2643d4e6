"""An unknown field in a few numbers: its prior, its values at sensors, and the density that a sampler explores."""
