"""Operators of ATen in terms of the model, one family in each file."""
