"""What follows from one core's program and its timeline: work, waits, the critical path, where the time went."""
