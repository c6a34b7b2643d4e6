"""Memorisation: which share of the labels of random sequences a network of one attention layer learns by heart.

`trial` describes a training and its row of figures, `pairs` draws or reads sequences, `senses` draws
ambiguous words, `initial` builds the networks,
`stack` trains many at once, `continuous` fits functions, `experiments` lists all trials, `record` keeps the rows,
`curves`, `cells` and `panels` make tables and a picture of them, and `command` is the command.
"""
