"""Tandem: several unmodified deep-learning jobs share one NVIDIA GPU."""
