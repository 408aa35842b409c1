"""Tensors of the first NKI: index expressions, masks, and which elements of which memory an access means."""
