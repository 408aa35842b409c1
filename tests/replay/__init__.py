"""Tests of the replay: a part of it, what it sees and what it does not, and its rule for the log."""
