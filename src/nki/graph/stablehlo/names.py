"""Attributes of this package: of functions that are groups, and of lines that say which part of a model they are."""

KIND = "nki.kind"
"""Which emitter makes the group's kernel."""

GROUP_NAME = "nki.name"
"""The name that groups share that compute the same."""

MODULES, OPERATION = "nki.modules", "nki.operation"
"""What a fused location says: the modules around a line, each with its class, and the operation of the framework."""
