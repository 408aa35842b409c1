"""Profiles that were measured on a device: read with distrust, matched with what the model predicts, fitted to."""
