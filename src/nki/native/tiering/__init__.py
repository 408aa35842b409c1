"""When an instruction is compiled to machine code, and when NumPy executes it."""
