"""Wire formats: bytes to arrays and back."""
