"""What users of the official simulator ran into, one test each."""
