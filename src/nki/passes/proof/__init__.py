"""The proof that a synchronised program orders every conflict, and what it reports where it does not."""
