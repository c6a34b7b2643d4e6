"""What a caller passes and receives: arrays, descriptions of models, what is known about errors, and exceptions."""
