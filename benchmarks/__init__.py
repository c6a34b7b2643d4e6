"""Takes the exported models, gives the figures that the README prints; one module a table, `make bench` for all."""
