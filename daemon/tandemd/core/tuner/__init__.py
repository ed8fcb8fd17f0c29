"""Keeps the objectives of jobs by feedback from how long their requests take."""
