"""The dependency graph of what a job does: built from a recording, drawn and analysed."""
