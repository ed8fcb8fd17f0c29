"""The edges of the daemon: sockets, shared memory, NVML and time. Each knows only core's types."""
