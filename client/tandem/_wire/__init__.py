"""Generated from proto/ by `make stubs`; do not edit."""
