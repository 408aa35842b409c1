"""What PyTorch and JAX have in common; no module here imports either."""
