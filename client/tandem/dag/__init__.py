"""The dependency graph of what a job does: read from a recording, pictured and counted."""
