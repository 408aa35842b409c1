"""Examples by instruction family."""
