"""Differentiable models as Tesseracts: what tesseract-torch and tesseract-jax speak, under `/tesseract/{model}`."""
