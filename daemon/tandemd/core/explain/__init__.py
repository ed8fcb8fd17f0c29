"""Explains in words why a job runs or waits, and what became of its requests and settings."""
