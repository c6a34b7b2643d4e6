"""The comparison of networks on data of other people's solvers, at equal processor time."""
