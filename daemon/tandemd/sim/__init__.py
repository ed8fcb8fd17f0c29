"""The scheduler's core on a virtual clock and a modelled GPU, to compare settings beforehand."""
