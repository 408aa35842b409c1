"""Dependences and the proof of schedules, against an oracle that runs every legal order."""
