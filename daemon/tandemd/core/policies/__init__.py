"""One policy a file, by what policy.py asks; their table is `tandemd.core.policy.POLICIES`."""
