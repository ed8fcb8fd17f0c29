"""Watches jobs for problems that people want to know of: five rules over periodic looks."""
