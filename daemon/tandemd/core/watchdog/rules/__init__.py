"""One rule a file; the table is in rule.py."""
