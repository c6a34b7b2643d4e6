"""Exact solvers and conjugate gradients for elliptic equations as layers, with guaranteed bounds."""
