"""What a legal kernel probably does not mean: the findings of calls and of `nki check --all`."""
