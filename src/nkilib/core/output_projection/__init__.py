"""Projections of what attention gives to hidden states."""
