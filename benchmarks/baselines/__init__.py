"""Takes the name of an alternative, gives a process that computes in an environment of its own, step by step."""
