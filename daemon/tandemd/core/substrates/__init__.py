"""One way to keep jobs apart a file; the table of them is `tandemd.core.substrate.SUBSTRATES`."""
