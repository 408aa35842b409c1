"""Tests of what an instruction is."""
