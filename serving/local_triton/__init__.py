"""The Triton servers: their connections, and the local server with its process and its backends."""
