"""What a model maps to what: quantities, axes and limits, as training, export and gateway read them."""
