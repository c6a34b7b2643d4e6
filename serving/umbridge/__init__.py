"""Models for uncertainty quantification: the protocol UM-Bridge 1.0 under `/umbridge`."""
