"""Records: the words that a compiled function reads, from the form of an instruction to its filled addresses."""
