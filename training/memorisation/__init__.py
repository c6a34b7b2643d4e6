"""Memorisation: which share of the labels of random sequences a network of one attention layer learns by heart.

`trial` describes a training and its row of figures, `pairs` draws or reads sequences, `network` builds what is trained,
`stack` trains many networks at once, `equivariant` fits a function, `experiments` lists all trials, `record` keeps the
rows, and `curves`, `table`, `plot` and `command` show them.
"""
