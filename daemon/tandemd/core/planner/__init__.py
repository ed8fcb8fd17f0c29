"""Plans for sharing one GPU: which there are, what is to be expected of them, which is in force."""
