"""What passes ask about a program: footprints, dependences, live ranges, and how much memory is needed when."""
