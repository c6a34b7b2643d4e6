"""From a checked request to batches for an inference backend, and back."""
