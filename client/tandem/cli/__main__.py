"""The `tandem` command: the only place where an exception becomes an exit code."""

import atexit
import errno
import fcntl
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from tandem._guarded import Guarded
from tandem.errors import NO_ROOM, CapacityError, TandemError, UsageError, exit_code

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Where a command is defined, and its line in `tandem --help`."""

    target: str  # module:attribute
    help: str


# Adding a command is one line here, its module, and its row in docs/cli.md.
COMMANDS = {
    "run": Verb(target="tandem.cli.run:run", help="Start a command that shares the GPU."),
    "env": Verb(target="tandem.cli.env:env", help="Print the variables that `run` sets."),
    "kernelspec": Verb(
        target="tandem.cli.kernelspec:kernelspec", help="Let notebooks share the GPU."
    ),
    "cdi": Verb(target="tandem.cli.cdi:cdi", help="Let containers share the GPU."),
    "kubernetes": Verb(
        target="tandem.cli.kubernetes:kubernetes", help="Let Kubernetes pods share the GPU."
    ),
    "attach": Verb(
        target="tandem.cli.attach:attach", help="Explain why a running process cannot become a job."
    ),
    "ps": Verb(target="tandem.cli.ps:ps", help="List the jobs."),
    "top": Verb(target="tandem.cli.top:top", help="Watch the jobs and the GPUs."),
    "status": Verb(target="tandem.cli.status:status", help="Show the daemon and its GPUs."),
    "explain": Verb(target="tandem.cli.explain:explain", help="Explain why a job runs or waits."),
    "set": Verb(target="tandem.cli.set:set_", help="Change priority, memory, SMs or SLO of a job."),
    "pause": Verb(target="tandem.cli.pause:pause", help="Hold jobs until they are resumed."),
    "resume": Verb(target="tandem.cli.pause:resume", help="Let paused jobs continue."),
    "cancel": Verb(target="tandem.cli.cancel:cancel", help="End jobs, by force if necessary."),
    "wait": Verb(target="tandem.cli.wait:wait", help="Wait until jobs have ended."),
    "events": Verb(target="tandem.cli.events:events", help="Show what happens to jobs."),
    "history": Verb(target="tandem.cli.history:history", help="List jobs that have ended."),
    "gpus": Verb(target="tandem.cli.gpus:gpus", help="List the GPUs."),
    "drain": Verb(target="tandem.cli.drain:drain", help="Stop starting jobs on a GPU."),
    "partition": Verb(
        target="tandem.cli.partition:partition", help="Show or change how GPUs are divided."
    ),
    "policy": Verb(target="tandem.cli.policy:policy", help="Show or change the scheduling policy."),
    "metrics": Verb(target="tandem.cli.metrics:metrics", help="Print metrics for Prometheus."),
    "report": Verb(target="tandem.cli.report:report", help="Draw memory and scaling of all jobs."),
    "config": Verb(target="tandem.cli.config:config", help="Show or check the configuration."),
    "doctor": Verb(target="tandem.cli.doctor:doctor", help="Check this machine and suggest fixes."),
    "demo": Verb(target="tandem.cli.demo:demo", help="Show programs sharing one GPU."),
    "trace": Verb(target="tandem.cli.trace:trace", help="Print or record driver calls."),
    "replay": Verb(
        target="tandem.cli.replay:replay", help="Replay recorded calls on the software GPU."
    ),
    "dag": Verb(target="tandem.cli.dag:dag", help="Show what a job does as a graph."),
    "softgpu": Verb(target="tandem.cli.softgpu:softgpu", help="Use the software GPU."),
    "completion": Verb(
        target="tandem.cli.completion:completion", help="Print a completion script for a shell."
    ),
    "version": Verb(target="tandem.cli.version:version_", help="Print the versions."),
}


# Verbs of other tools that have a different name here, or no counterpart.
_ELSEWHERE = {
    "kill": "`tandem cancel` ends jobs",
    "list": "`tandem ps` lists the jobs",
    "logs": "a job writes to where `tandem run` was started, and the daemon to its stderr; under "
    "systemd see `journalctl -u tandemd`",
}
_FEW_OPTIONS = 8  # most options that an error lists; nobody reads a longer list


class Verbs(Guarded, click.Group):
    """A group that imports a command only when it is run or its help is shown."""

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Exit silently when the reader of our output goes away, also while Python shuts down."""
        try:
            yield
        except BrokenPipeError:  # caught here because click's own `main` turns it into a failure
            _drop_output()
            raise click.exceptions.Exit(0) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        verb = COMMANDS.get(cmd_name)
        return load(verb) if verb else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but suggests the nearest verb for a misspelt one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = _ELSEWHERE.get(args[0]) or (f"did you mean {near[0]!r}?" if near else "")
            ctx.fail(f"no command {args[0]!r}" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help lines from the table, so that `--help` imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in COMMANDS.items()])


def load(verb: Verb) -> click.Command:
    """Import the command that a table row points to."""
    module, _, attribute = verb.target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-tandem", message="tandem %(version)s")
def tandem() -> None:
    """Let several unmodified deep-learning jobs share one NVIDIA GPU.

    \b
    Examples:
      tandem run --priority latency -- python serve.py
      tandem run -p batch -m 20GiB -- python train.py
      tandem ps
      tandem explain JOB
    """


def main() -> int:
    """Run the command line; returns its exit code."""
    atexit.register(gc.freeze)  # the final garbage collection took a fifth of `tandem ps`
    _open_closed_outputs()
    _write_any_name()
    try:
        result = tandem.main(prog_name="tandem", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as exc:
        return _report_usage(exc)
    except TandemError as exc:
        return _report(exc)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as exc:
        return _report(_in_words(exc))
    return result if isinstance(result, int) else 0


def _in_words(failure: OSError) -> TandemError:
    """Turn a failure that the user can fix into an error; re-raise any other, which is a bug."""
    if isinstance(failure, PermissionError | FileNotFoundError | NotADirectoryError):
        what = f"'{failure.filename}'" if failure.filename else "the current directory"
        return UsageError(f"{what}: {failure.strerror}")
    is_closed = failure.errno == errno.EBADF and _is_output_closed()
    if failure.filename is not None or not (is_closed or failure.errno in NO_ROOM):
        raise failure  # did not come from printing our output
    _drop_output()
    if is_closed:
        return UsageError("cannot write the output: standard output is closed")
    return CapacityError(f"cannot write the output: {failure.strerror}")


def _is_output_closed() -> bool:
    flags = fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL)
    return flags & os.O_ACCMODE == os.O_RDONLY  # the stand-in from _open_closed_outputs


def _open_closed_outputs() -> None:
    # After `>&-`, and under some launchers, Python sets the stream to None. Messages for people may
    # be lost then. But nobody may believe that requested output was written: writing to stdout has
    # to fail, hence the read-only stand-in.
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115


def _write_any_name() -> None:
    # Names of kernels and jobs may contain characters that the terminal's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    # Python flushes stdout again at shutdown, and that must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_usage(error: click.ClickException) -> int:
    """Report what click found wrong, in the format of all our errors."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)  # the help text, which starts with the usage
        return error.exit_code
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        usage = context.get_usage()
        print(f"{usage}\nTry '{context.command_path} --help' for help.\n", file=sys.stderr)
    if isinstance(error, click.BadParameter) and error.param and error.param.envvar:
        from tandem.cli._parsed import where_said  # every key of a user's file has a variable, too

        error.param_hint = repr(where_said(error.param, error.ctx))
    print(f"error: {error.format_message()}{_other_options(error)}", file=sys.stderr)
    return error.exit_code


def _other_options(error: click.ClickException) -> str:
    """List the options if click found none that resembles the one given."""
    if not isinstance(error, click.NoSuchOption) or error.possibilities or error.ctx is None:
        return ""
    params = error.ctx.command.get_params(error.ctx)
    known = [param.opts[-1] for param in params if isinstance(param, click.Option)]
    return f" There are {', '.join(known)}." if len(known) <= _FEW_OPTIONS else ""


def _report(error: TandemError) -> int:
    print(f"error: {error}", file=sys.stderr)
    own = getattr(error, "exit_code", None)  # `run` uses the codes of env(1)
    return own if isinstance(own, int) else exit_code(error)


if __name__ == "__main__":
    sys.exit(main())
