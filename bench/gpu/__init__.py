"""Measurements that need a real GPU: `make gpu`. See run.sh."""
