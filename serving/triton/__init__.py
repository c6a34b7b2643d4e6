"""The Triton server: its process, its connections, its backends."""
