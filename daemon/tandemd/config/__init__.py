"""The daemon's configuration: its files, what they may say, and what they let a uid have."""
