"""Generated from proto/tandem/v1/tandem.proto by `make stubs`; do not edit."""
