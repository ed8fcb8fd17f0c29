"""What `make gpu PART=...` names, a module each; and what some of them are made of."""
