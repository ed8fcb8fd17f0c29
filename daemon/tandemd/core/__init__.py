"""The pure scheduler: events in, actions out; no clock, no I/O, no threads."""
