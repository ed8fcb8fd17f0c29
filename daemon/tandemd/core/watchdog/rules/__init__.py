"""One rule per file; the table is in rule.py."""
