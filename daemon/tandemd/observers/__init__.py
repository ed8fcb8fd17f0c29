"""What is learnt about jobs from what they and the driver report, for the core and for people."""
