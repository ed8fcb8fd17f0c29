"""Device memory: limits and promises, the line for it, and what is on the GPU or on the host."""
