"""Attention: of prompts, of steps of decoding, and its gradients."""
