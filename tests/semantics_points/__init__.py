"""The points of the semantics that are easy to get wrong, each with its test."""
