"""`ade features`: what is switched on and off for all processes, while they run."""

import click

from ade.cli.config import STORE
from ade.cli.identity import acting, as_option
from ade.cli.output import Cell, Row
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.governance import runtime
from ade.governance.runtime_names import FEATURES, IN_FILES
from ade.settings import DEFAULT


@group("features", bare="list")
def features() -> None:
    """Features that are switched at run time. `ade features` alone lists them."""


@features.command("list")
@pass_session
def list_features(session: Session) -> None:
    """List all features, whether they are on, and whether somebody has said so."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.stores() as stores:
        known = await runtime.load(stores)
    standing = {name: _standing(session, known, name) for name in FEATURES}
    if session.out.as_json:
        session.out.document({name: {"is_on": on, "origin": origin} for name, (on, origin) in standing.items()})
        return
    rows: list[Row] = [
        (name, Cell("on", "green") if on else Cell("off", "yellow"), origin, FEATURES[name].about)
        for name, (on, origin) in standing.items()
    ]
    session.out.table(("feature", "state", "origin", "meaning"), rows)


def _standing(session: Session, known: runtime.Runtime, name: str) -> tuple[bool, str]:
    """Whether a feature is on, and who says so: the store, else a layer of the settings."""
    if name in known.switches:
        return known.is_on(name), STORE
    if name not in IN_FILES:
        return known.is_on(name), DEFAULT
    setting = IN_FILES[name]
    return bool(dict(session.settings.items())[setting]), session.loaded.origins[setting]


@features.command("enable")
@click.argument("name")
@as_option
@pass_session
def enable(session: Session, name: str) -> None:
    """Switch a feature on, for all processes of the store."""
    session.run(_switch(session, name, True))


@features.command("disable")
@click.argument("name")
@as_option
@pass_session
def disable(session: Session, name: str) -> None:
    """Switch a feature off, for all processes of the store."""
    session.run(_switch(session, name, False))


async def _switch(session: Session, name: str, is_on: bool) -> None:
    runtime.check_feature(name)
    async with session.stores(must_exist=False) as stores:
        await runtime.switch(stores, name, is_on, actor=acting(session))
    if session.out.as_json:
        session.out.document({"feature": name, "is_on": is_on})
    else:
        session.out.line(f"{name}: {'on' if is_on else 'off'}")


@features.command("unset")
@click.argument("name")
@as_option
@pass_session
def unset(session: Session, name: str) -> None:
    """Take back what was said of a feature, so that files and defaults count again."""
    session.run(_unset(session, name))


async def _unset(session: Session, name: str) -> None:
    runtime.check_feature(name)
    async with session.stores() as stores:
        is_on, origin = _standing(session, await runtime.unset(stores, name, actor=acting(session)), name)
    if session.out.as_json:
        session.out.document({"feature": name, "is_on": is_on})
    else:
        session.out.line(f"{name}: {'on' if is_on else 'off'} ({origin})")
