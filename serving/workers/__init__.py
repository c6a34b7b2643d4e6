"""Several gateway processes on one port: what they share, and the process that starts and replaces them."""
