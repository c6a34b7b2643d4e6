"""Inversion as a service: from measurements at sensors to the input of a model, with its uncertainty."""
