"""The memory that jobs held over time, drawn: `tandem report`, `tandem trace record`."""
