"""The baselines, and the protocol by which each computes in a process and an environment of its own."""
