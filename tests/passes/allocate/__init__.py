"""Tests of allocation: live ranges, packing, explicit addresses, spilling, usage tables."""
