"""The parts that `make gpu PART=...` names, a module each, and modules that some of them share."""
