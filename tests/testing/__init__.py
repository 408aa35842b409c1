"""Tests of `nki.testing`."""
