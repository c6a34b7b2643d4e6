"""Derivatives of exported graphs: products of Jacobians and vectors, each a graph with free axes of its own.

A served graph is differentiated as it is, operator by operator, so a derivative belongs to exactly the values that are
served, and it is made in a second. `torch.onnx.export` of a module that differentiates takes minutes.
"""
