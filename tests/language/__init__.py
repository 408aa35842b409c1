"""Tests of nki.language."""
