"""Tests of the instructions of the first NKI."""
