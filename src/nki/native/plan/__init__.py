"""Execution plans: a whole program as records, and what is worked out before it runs."""
