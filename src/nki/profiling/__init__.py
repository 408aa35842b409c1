"""Profiles of compiled kernels: what ran when and why, where the time went, and what to do about it."""
