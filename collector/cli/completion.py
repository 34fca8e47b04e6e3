"""`collector completion`: what a shell needs to complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM, VARIABLE = "collector", "_COLLECTOR_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """
\b
Examples:
  collector completion bash
  collector completion zsh
  collector completion fish

\b
To install it, once:
  bash   echo 'eval "$(collector completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(collector completion zsh)"' >> ~/.zshrc
  fish   collector completion fish > ~/.config/fish/completions/collector.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options and their values; `collector` must be on PATH.
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click knows all of SHELLS"
    script = complete(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    # Not `source`: bash's runs bash for its version, which a script for another machine needs not.
    click.echo(script.source_template % script.source_vars())
