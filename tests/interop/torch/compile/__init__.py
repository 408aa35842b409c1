"""Tests of the backend for `torch.compile`."""
