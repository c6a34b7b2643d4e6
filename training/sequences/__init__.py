"""Takes sequences of tokens with labels, gives networks that classify a sequence, or say how two belong together."""
