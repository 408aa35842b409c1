"""Tests of `nki compare`."""
