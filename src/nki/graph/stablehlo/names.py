"""Attributes of functions that say that they are groups."""

KIND = "nki.kind"
"""Which emitter makes the group's kernel."""

GROUP_NAME = "nki.name"
"""The name that groups share that compute the same."""
