"""`ade config`: the settings in force, and those that are changed while all goes on."""

import click

from ade.cli.identity import acting, as_option
from ade.cli.output import Cell, Row, compact
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.core.errors import StoreError
from ade.core.urls import without_password
from ade.governance import runtime
from ade.governance.runtime_names import IN_FILES, SETTINGS
from ade.settings import DEFAULT

STORE = "store"
_Known = list[tuple[str, object, str]]  # name, value, origin


@group("config")
def config() -> None:
    """Show the settings in force and where they come from; change those that are kept in the store."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Tell where each value comes from.")
@click.option("--changed", is_flag=True, help="Leave out what has its default.")
@pass_session
def show(session: Session, origin: bool, changed: bool) -> None:
    """Show every setting, as all layers together have it: defaults, files, environment, options, the app, the store.

    Passwords in URLs are left out.
    """
    known = [one for one in _all(session) if not changed or one[2] != DEFAULT]
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


def _all(session: Session) -> _Known:
    """What the store says goes before all layers."""
    stored, loaded = _in_store(session), session.loaded
    known: _Known = [
        (name, without_password(value) if isinstance(value, str) else value, loaded.origins[name])
        for name, value in loaded.settings.items()
    ]
    switched = {IN_FILES[feature]: is_on for feature, is_on in stored.switches.items() if feature in IN_FILES}
    known = [(name, switched[name], STORE) if name in switched else (name, value, at) for name, value, at in known]
    return known + [(name, stored.get(name), STORE if name in stored.values else DEFAULT) for name in SETTINGS]


def _in_store(session: Session) -> runtime.Runtime:
    """A store that is not there, or away, says nothing."""
    if session.settings.store.url != "memory://" and session.has_store():
        try:
            return session.look(_load(session))
        except StoreError as error:
            session.out.note(f"What is set at run time is not known: {error.detail}")
    return runtime.Runtime()


async def _load(session: Session) -> runtime.Runtime:
    async with session.stores() as stores:
        return await runtime.load(stores)


@config.command("get")
@click.argument("name")
@pass_session
def get(session: Session, name: str) -> None:
    """Print one setting, of any layer or of the store."""
    known = {each: (value, place) for each, value, place in _all(session)}
    if name not in known:
        runtime.check_setting(name)
    _tell(session, name, *known[name], bare=True)


@config.command("set")
@click.argument("name")
@click.argument("value", type=float)
@as_option
@pass_session
def set_value(session: Session, name: str, value: float) -> None:
    """Keep a run-time setting in the store, for all processes, from now on. Others belong in a settings file."""
    session.run(_set(session, name, value))


async def _set(session: Session, name: str, value: float) -> None:
    runtime.check_setting(name)
    async with session.stores(must_exist=False) as stores:
        after = await runtime.set_value(stores, name, value, actor=acting(session))
    _tell(session, name, after.get(name), STORE)


@config.command("unset")
@click.argument("name")
@as_option
@pass_session
def unset(session: Session, name: str) -> None:
    """Remove a run-time setting from the store, so that files and defaults count again."""
    session.run(_unset(session, name))


async def _unset(session: Session, name: str) -> None:
    runtime.check_setting(name)
    async with session.stores() as stores:
        after = await runtime.unset(stores, name, actor=acting(session))
    _tell(session, name, after.get(name), DEFAULT)


def _tell(session: Session, name: str, value: object, place: str, *, bare: bool = False) -> None:
    if session.out.as_json:
        session.out.document({"name": name, "value": value, "origin": place})
    else:
        session.out.line(_shown(value) if bare else f"{name} = {_shown(value)} ({place})")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else compact(value)
