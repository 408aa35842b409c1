"""Tests of the device in PyTorch."""
