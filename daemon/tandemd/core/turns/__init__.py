"""Whose turn it is on an island, for how long, and who shares it."""
