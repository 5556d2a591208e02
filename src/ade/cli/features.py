"""`ade features`: what is switched on and off for all processes, while they run."""

import click

from ade.cli.identity import as_option
from ade.cli.output import Cell, Row
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.governance.runtime import check_feature
from ade.governance.runtime_names import IN_FILES
from ade.insight.runtime import FeatureView, Origin


@group("features", bare="list")
def features() -> None:
    """Features that are switched at run time. `ade features` alone lists them."""


@features.command("list")
@pass_session
def list_features(session: Session) -> None:
    """List all features, whether they are on, and whether somebody has said so."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_features)
    if session.out.as_json:
        session.out.document({one.name: {"is_on": one.is_on, "origin": _origin(session, one)} for one in known})
        return
    rows: list[Row] = [
        (one.name, Cell("on", "green") if one.is_on else Cell("off", "yellow"), _origin(session, one), one.about)
        for one in known
    ]
    session.out.table(("feature", "state", "origin", "meaning"), rows)


def _origin(session: Session, seen: FeatureView) -> str:
    """Who says so: the store, else a layer of the settings. Those of a server are not known here."""
    if seen.origin is Origin.STORE or session.server is not None or seen.name not in IN_FILES:
        return str(seen.origin)
    return session.loaded.origins[IN_FILES[seen.name]]


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
    if session.server is None:
        check_feature(name)  # a mistake makes no store
    async with session.api(must_exist=False) as api:
        await api.switch_feature(name, is_on=is_on)
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
    async with session.api() as api:
        seen = await api.unset_feature(name)
    if session.out.as_json:
        session.out.document({"feature": name, "is_on": seen.is_on})
    else:
        session.out.line(f"{name}: {'on' if seen.is_on else 'off'} ({_origin(session, seen)})")
