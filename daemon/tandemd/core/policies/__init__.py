"""One policy a file; the table of them is `tandemd.core.policy.POLICIES`."""
