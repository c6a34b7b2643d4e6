"""The profiler of attention types, encoder stacks and recipes: time and memory of a training step over the points.

A step is forward, mean squared error to a random target, and backward, on random input, without the optimiser. Forms
are interleaved. Memory is the step's peak beyond what network and input hold.
"""
