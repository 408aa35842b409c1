"""The MLP of a mixture of experts for many tokens, in blocks by expert."""
