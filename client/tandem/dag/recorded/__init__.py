"""What the calls of a recording mean: their owners, operations, durations and memory."""
