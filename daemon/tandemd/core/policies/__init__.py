"""The policies, one per file, as policy.py defines them; the table is in `tandemd.core.policy`."""
