"""The configuration: its files, what they may say, and what a uid may ask for by them."""
