"""The `tandem` command: one module per verb, imported only when that verb is used."""

import signal


def main() -> int:
    """Run the command line; until it has been imported, Ctrl-C ends the process silently."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tandem.cli import __main__ as command

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command.main()
