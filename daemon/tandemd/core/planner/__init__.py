"""Plans for sharing one GPU: which exist, what to expect of each, and which is in force."""
