"""Attention as one kernel, which keeps the scores on chip."""
