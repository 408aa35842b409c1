"""The first NKI."""
