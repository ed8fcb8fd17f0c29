"""tandemd-helper: the part of Tandem that runs as root: a few verbs, for a daemon without root."""
