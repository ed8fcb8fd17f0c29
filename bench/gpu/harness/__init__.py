"""What the parts of `make gpu` stand on: the device, programs and their deadlines, results."""
