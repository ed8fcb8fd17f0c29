"""What only a real GPU can show: `make gpu`. See run.sh."""
