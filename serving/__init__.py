"""Serve a model repository: a gateway for arrays in physical units, and the Triton that runs the models."""
