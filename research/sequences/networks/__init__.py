"""Networks that map tokens to logits, one per file."""
