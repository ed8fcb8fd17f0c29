"""The main demo: an inference server and two trainers share one GPU, with Tandem and without."""
