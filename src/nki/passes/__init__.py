"""Passes over programs: what they analyse and change before they run."""
