"""The infrastructure of the parts of `make gpu`: device, programs, their deadlines, results."""
