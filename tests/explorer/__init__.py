"""Tests of the profile explorer."""
