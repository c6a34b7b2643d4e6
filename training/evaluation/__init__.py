"""Errors and times of an operator by grid, beside the classical baseline's."""
