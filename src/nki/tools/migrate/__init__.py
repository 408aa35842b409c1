"""``nki migrate``: kernels of the first NKI in today's language."""
