"""The tables that compare networks with classical methods at equal accuracy."""
