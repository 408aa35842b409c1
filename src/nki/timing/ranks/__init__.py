"""A step of many ranks in time: compiled programs and messages, which meet in collectives on an instance's topology.

Ranks that have the same program, the same speed and the same partners have the same times, and are simulated once.
"""
