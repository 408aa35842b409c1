"""Where on-chip tensors lie: addresses, packing, spilling, and what makes room."""
