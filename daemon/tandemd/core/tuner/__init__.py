"""Keeps the objectives of jobs by feedback on what their requests take."""
