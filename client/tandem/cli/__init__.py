"""The `tandem` command: one module for each verb, loaded when it is asked for."""

import signal


def main() -> int:
    """Run the command line; until all of it is there Ctrl-C ends the process, without a word."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tandem.cli import __main__ as command

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command.main()
