"""Forward passes of mixtures of experts."""
