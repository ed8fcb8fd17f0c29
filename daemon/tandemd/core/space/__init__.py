"""SMs: what jobs ask for, how their speed scales with SMs, and which SMs are whose."""
