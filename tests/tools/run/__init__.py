"""Tests of `nki run`."""
