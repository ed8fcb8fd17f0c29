"""Traces of driver calls: recording, showing, exporting and replaying them."""
