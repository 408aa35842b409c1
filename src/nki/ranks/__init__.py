"""Where the ranks of a launch meet: `protocol` says what a meeting is, `threads` is ranks in one process."""
