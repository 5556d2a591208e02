"""Ask before something happens to many."""

import click

from ade.cli.session import Session


def confirm(session: Session, question: str, *, yes: bool) -> None:
    """Go on only when --yes was given or somebody says so."""
    if yes:
        return
    if not session.is_interactive:
        raise click.UsageError(f"{question} Add --yes to go on.")
    if not click.confirm(question, err=True):
        raise click.Abort
