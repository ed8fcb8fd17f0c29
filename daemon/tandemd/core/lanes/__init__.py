"""Admission to a GPU such that every admitted job can finish."""
