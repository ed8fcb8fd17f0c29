"""What is found out about jobs from what they and the driver say, for the core and for people."""
