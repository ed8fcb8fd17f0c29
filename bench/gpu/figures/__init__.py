"""Turns what programs reported into figures. Pure functions."""
