"""How passes change a program: rewriting, removing and reordering, with everything that counts positions."""
