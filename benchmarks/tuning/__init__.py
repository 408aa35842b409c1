"""Tuning by different executors."""
