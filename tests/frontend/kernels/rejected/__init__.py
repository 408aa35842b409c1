"""Kernels that are refused: a comment `# error: CODE` stands on the line that the error must point at."""
