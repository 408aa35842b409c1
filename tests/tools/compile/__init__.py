"""Tests of the commands that compile."""
