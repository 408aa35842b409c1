"""What a trace depends on, so that a compiled kernel is used again only while that is the same."""
