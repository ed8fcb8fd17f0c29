"""Device memory: limits and promises, the line for it, and whose is on the GPU or on the host."""
