"""The `nki` command."""
