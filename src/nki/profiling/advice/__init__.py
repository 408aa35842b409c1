"""What costs most and what to change: rules that look at one core, ranked by what they save."""
