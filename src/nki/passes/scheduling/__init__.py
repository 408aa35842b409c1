"""In which order and on which queues instructions run, and the semaphores that keep them in order."""
