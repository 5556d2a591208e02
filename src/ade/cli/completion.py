"""`ade completion`: let a shell complete commands and options."""

import os
from pathlib import Path

import click

from ade.cli.session import Session
from ade.cli.shared import command, pass_session

_SHELLS = ("bash", "zsh", "fish")
_HOW = {
    "bash": 'eval "$(ade completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(ade completion zsh)" in ~/.zshrc',
    "fish": "ade completion fish > ~/.config/fish/completions/ade.fish",
}


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@pass_session
def completion(session: Session, shell: str | None) -> None:
    """Print the completion script for a shell; without an argument that of the shell you use.

    \b
      eval "$(ade completion bash)"                               in ~/.bashrc
      eval "$(ade completion zsh)"                                in ~/.zshrc
      ade completion fish > ~/.config/fish/completions/ade.fish   once
    """
    from click.shell_completion import get_completion_class

    from ade.cli.program import ade

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(chosen) if chosen in _SHELLS else None
    if kind is None:
        raise click.UsageError(f"Name the shell: {', '.join(_SHELLS)}.")
    script = kind(ade, {}, "ade", "_ADE_COMPLETE").source()
    if session.out.as_json:
        session.out.document({"shell": chosen, "script": script, "use": _HOW[chosen]})
    else:
        session.out.line(script)
