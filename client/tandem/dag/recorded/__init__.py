"""What the calls of a recording come to: whose they are, which operations, how long, on what."""
