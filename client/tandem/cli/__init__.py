"""The `tandem` command: one module for each verb, loaded when it is asked for."""
