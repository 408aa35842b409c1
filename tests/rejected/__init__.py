"""Kernels that must be refused, by topic, each with the exact text that its author sees."""
