"""Profiles of a step of many ranks: work, communication that is exposed or hidden, waiting, and the critical path."""
