"""Checked inputs to batches for an inference server, and its outputs back to the requests they belong to."""
