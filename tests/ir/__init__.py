"""Tests of the IR."""
