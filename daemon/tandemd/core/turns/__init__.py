"""Whose turn it is on an island, for how long, and with whom it is shared."""
