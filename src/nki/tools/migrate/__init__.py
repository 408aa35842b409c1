"""``nki migrate``: kernels of the first NKI, and of NKI before 0.7, in today's language."""
