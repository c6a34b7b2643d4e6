"""The local Triton: its Python environment, its process and its backends."""
