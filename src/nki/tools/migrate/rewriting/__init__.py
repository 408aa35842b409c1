"""One function of an old kernel in today's language: a file for each kind of statement and expression."""
