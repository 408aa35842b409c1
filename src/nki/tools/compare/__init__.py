"""``nki compare``: a kernel against a reference, or against itself under other settings."""
