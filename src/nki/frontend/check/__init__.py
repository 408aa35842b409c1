"""The language check: what is wrong with a kernel's source, told before it is run."""
