"""Kernels for large parts of a transformer's layer, with everything between in SBUF."""
