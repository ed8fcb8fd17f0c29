"""`tandem completion`."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TANDEM_COMPLETE"  # click derives it from the name


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes SHELL complete commands, options and their values.

    Jobs, groups, GPUs and policies are those that the daemon knows, if it answers within a second.

    Evaluate the script in the shell's start-up file, or have a package install it where the shell
    looks: as bash-completion/completions/tandem, zsh/site-functions/_tandem or
    fish/vendor_completions.d/tandem.fish below /usr/share. It calls the `tandem` found on the PATH.
    bash must be 4.4 or newer.

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
    # Not `source()`: it starts bash to ask for its version, and package builds may lack bash.
    click.echo(complete.source_template % complete.source_vars())
