"""Tests of instructions."""
