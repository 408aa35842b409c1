"""``nki grade``: one command that judges a kernel that somebody else wrote."""
