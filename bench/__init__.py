"""Measurements against the budgets of the project. `python -m bench NAME`."""
