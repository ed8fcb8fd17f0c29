"""Ways to keep jobs apart, one per file; `tandemd.core.substrate.SUBSTRATES` is their table."""
