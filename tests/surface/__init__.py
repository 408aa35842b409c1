"""Tests of the public surface."""
