"""Passes of the graph compiler: each takes a valid model and leaves a valid one."""
