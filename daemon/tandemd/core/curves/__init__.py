"""Starts iterations, whose memory rises and falls, at times when it fits together."""
