"""What an instruction does, as an expression graph that machine code is made of."""
