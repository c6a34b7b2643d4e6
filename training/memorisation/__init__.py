"""Takes sets of labelled sequences and sizes of networks, gives what part of the labels each network learns by heart.

One noun a file: `trial` says what is tried, `pairs` draws or reads sequences, `network` builds
what is trained, `stack` trains many at once, `equivariant` fits a function, `experiments` lists all that is tried,
`record` keeps the rows, `table`, `plot` and the `command` show them.
"""
