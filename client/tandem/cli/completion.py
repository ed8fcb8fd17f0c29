"""`tandem completion`."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TANDEM_COMPLETE"  # by which the script asks `tandem`; click makes it of the name


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script by which a SHELL completes commands, options and what they take.

    Jobs, groups, GPUs and policies are those that the daemon knows, if it answers within a second.

    Its own start-up file evaluates it, or a package installs it where the shell looks: as
    bash-completion/completions/tandem, zsh/site-functions/_tandem or
    fish/vendor_completions.d/tandem.fish below /usr/share. It asks the `tandem` that is found on
    the PATH. bash has to be 4.4 or newer.

    \b
    Examples:
      eval "$(tandem completion bash)"      # in ~/.bashrc
      eval "$(tandem completion zsh)"       # in ~/.zshrc, after compinit
      tandem completion fish | source       # in ~/.config/fish/config.fish
      tandem completion bash > /usr/share/bash-completion/completions/tandem
    """
    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(ctx.find_root().command, {}, "tandem", _VARIABLE)
    # Not its `source()`, which starts a bash to ask for its version: a package may be made without.
    click.echo(complete.source_template % complete.source_vars())
