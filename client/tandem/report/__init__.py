"""What jobs held of the GPUs' memory over time, drawn: `tandem report`, `tandem trace record`."""
