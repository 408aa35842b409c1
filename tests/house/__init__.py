"""Tests of the figures of the house, on small trees made for them."""
