"""Running plans: cores, threads, and the machine of eager calls."""
