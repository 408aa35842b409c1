"""Kernels inside frameworks; each module here imports its framework, and nothing else imports these modules."""
