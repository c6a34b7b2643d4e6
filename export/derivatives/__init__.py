"""Derivatives of exported graphs: products of Jacobians and vectors, each a graph with free axes of its own.

A served graph is differentiated as it is, operator by operator, so a derivative belongs to exactly the values that are
served, and it is made in a second. A graph by `torch.func.vjp`, `make_fx` and `torch.onnx.export` takes a minute, has a
quarter more nodes and is a fifth slower (`darcy_galerkin`); networks with free numbers of points cannot be traced so.
"""
