"""Tests of the way from a call to a program."""
