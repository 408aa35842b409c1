"""Training of mixtures of experts."""
