"""Loops of the device as Python writes them: statements, regions, and the values that trips hand on."""
