"""Tests of nki.autotune and nki tune."""
