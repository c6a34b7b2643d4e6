"""Memorisation: which share of the labels of random sequences a network of one attention layer learns by heart.

`trials` lists the experiments and describes a training and its figures, `sequences` draws or reads what is learned,
`training` builds networks and trains many at once, `continuous` fits functions, `contextual_mapping` and `constructed`
build what the theorems promise, `curves` and `panels` make tables and a picture, and `command` is the command.
"""
