"""Requests and responses as bytes: the wire formats of HTTP and gRPC, their parts, and when a request is sent again."""
