"""SMs: what a job asks for, how it scales with them, and which are its own."""
