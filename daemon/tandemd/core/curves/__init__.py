"""Iterations whose memory goes up and down, begun so that it fits together."""
