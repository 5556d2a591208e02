"""`ade config`: the settings in force."""

import click

from ade.cli.output import Cell, Row, compact
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.core.urls import without_password
from ade.settings import DEFAULT


@group("config")
def config() -> None:
    """Show the settings in force and where they come from."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Tell where each value comes from.")
@click.option("--changed", is_flag=True, help="Leave out what has its default.")
@pass_session
def show(session: Session, origin: bool, changed: bool) -> None:
    """Show every setting, as all layers together have it: defaults, files, environment, options, the app.

    Passwords in URLs are left out.
    """
    loaded = session.loaded
    known = [
        (name, without_password(value) if isinstance(value, str) else value, loaded.origins[name])
        for name, value in loaded.settings.items()
        if not changed or loaded.origins[name] != DEFAULT
    ]
    if session.out.as_json:
        session.out.document(
            {name: {"value": value, "origin": place} if origin else value for name, value, place in known}
        )
        return
    rows: list[Row] = [
        (name, _shown(value), *((Cell(place, "dim" if place == DEFAULT else "cyan"),) if origin else ()))
        for name, value, place in known
    ]
    session.out.table(("setting", "value", "origin") if origin else ("setting", "value"), rows)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else compact(value)
