"""Names that are not what a kernel or a program expects: gone, renamed, and what to write today."""
