"""Watches what jobs do for what people want to be told: five rules over looks at each job."""
