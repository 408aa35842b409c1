"""How long a compiled program takes on a target: the cost of instructions, and their timeline."""
