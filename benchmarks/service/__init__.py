"""Measurements of a running service: time, throughput, overhead, long loads and malformed bodies."""
