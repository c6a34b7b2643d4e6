"""Inversion from sensors: the served network beside the finite volumes with their adjoint, in the same optimiser."""
