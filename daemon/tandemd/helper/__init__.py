"""tandemd-helper: root's part of Tandem, a few verbs for a daemon that is not root's."""
