"""Tests of `nki check`."""
