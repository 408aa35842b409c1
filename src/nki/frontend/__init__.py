"""From a Python function and its arguments to a program."""
