"""Takes attention types, encoder stacks and recipes, gives time and memory of a training step over the points' number.

A step is forward, mean squared error to a random target, and backward, on random input, without the optimiser. Time is
wall clock, types in turns; memory is the step's peak beyond what network and input hold. One noun a file: `forms`,
`subjects`, `memory`, `measure`, `growth`, `headlines`, `report`, `table`, `plot` and the `command`.
"""
