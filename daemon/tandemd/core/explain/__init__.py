"""Why a job runs or waits, and what became of what was asked for it, in words."""
