"""Tests of single operators on the device."""
