"""The MLP of a mixture of experts for few tokens."""
