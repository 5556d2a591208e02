"""`ade config`: the settings in force, and those that are changed while all goes on."""

from collections.abc import Mapping
from typing import NamedTuple

import click

from ade.accounts.model import NotAuthenticated
from ade.cli.command import group, pass_session
from ade.cli.identity import as_option
from ade.cli.output import Cell, Row, all_of, compact
from ade.cli.session import Session
from ade.common.text import without_password
from ade.errors import NotPermitted, ServerUnreachable, StoreError
from ade.settings import DEFAULT
from ade.settings.api import FeatureView, SettingOrigin, SettingView
from ade.settings.runtime import IN_FILES, SETTINGS, check_feature, check_setting

STORE = str(SettingOrigin.STORE)
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

    Those of this machine; where a server was named, what is set at run time is the server's. Passwords in URLs are
    left out.
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
    return known + stored.values


class _StoredSettings(NamedTuple):
    values: _Known  # of every run-time setting
    switches: Mapping[str, bool]  # of features that somebody has switched


def _in_store(session: Session) -> _StoredSettings:
    """A store or a server that is not there, or away, says nothing."""
    is_local = session.server is None
    if not is_local or (session.settings.store.url != "memory://" and session.has_store()):
        try:
            return session.look(_load(session))
        except (StoreError, ServerUnreachable, NotAuthenticated, NotPermitted) as error:
            session.out.note(f"What is set at run time is not known: {error.detail}")
    return _StoredSettings([(name, float(known.default), DEFAULT) for name, known in SETTINGS.items()], {})


async def _load(session: Session) -> _StoredSettings:
    async with session.api() as api:
        values = await all_of(api, api.list_settings)
        features = await all_of(api, api.list_features)
    return _StoredSettings(
        [(one.name, one.value, str(one.origin)) for one in values],
        {one.name: one.is_on for one in features if one.origin is SettingOrigin.STORE},
    )


@config.command("get")
@click.argument("name")
@pass_session
def get(session: Session, name: str) -> None:
    """Print one setting, of any layer or of the store."""
    if session.server is not None and name not in session.loaded.origins:
        seen = session.look(_get(session, name))
        _tell(session, name, seen.value, str(seen.origin), bare=True)
        return
    known = {each: (value, place) for each, value, place in _all(session)}
    if name not in known:
        check_setting(name)
    _tell(session, name, *known[name], bare=True)


async def _get(session: Session, name: str) -> SettingView:
    async with session.api() as api:
        return await api.get_setting(name)


@config.command("set")
@click.argument("name")
@click.argument("value", type=float)
@as_option
@pass_session
def set_value(session: Session, name: str, value: float) -> None:
    """Keep a run-time setting in the store, for all processes, from now on. Others belong in a settings file."""
    session.run(_set(session, name, value))


async def _set(session: Session, name: str, value: float) -> None:
    if session.server is None:
        check_setting(name)  # a mistake makes no store
    async with session.api(must_exist=False) as api:
        after = await api.set_setting(name, value=value)
    _tell(session, name, after.value, str(after.origin))


@config.command("unset")
@click.argument("name")
@as_option
@pass_session
def unset(session: Session, name: str) -> None:
    """Remove a run-time setting from the store, so that files and defaults count again."""
    session.run(_unset(session, name))


async def _unset(session: Session, name: str) -> None:
    async with session.api() as api:
        after = await api.unset_setting(name)
    _tell(session, name, after.value, str(after.origin))


def _tell(session: Session, name: str, value: object, place: str, *, bare: bool = False) -> None:
    if session.out.as_json:
        session.out.document({"name": name, "value": value, "origin": place})
    else:
        session.out.line(_shown(value) if bare else f"{name} = {_shown(value)} ({place})")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


# `ade features`: what is switched on and off for all processes, while they run.


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
    if seen.origin is SettingOrigin.STORE or session.server is not None or seen.name not in IN_FILES:
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
def unset_feature_command(session: Session, name: str) -> None:
    """Take back what was said of a feature, so that files and defaults count again."""
    session.run(_unset_features(session, name))


async def _unset_features(session: Session, name: str) -> None:
    async with session.api() as api:
        seen = await api.unset_feature(name)
    if session.out.as_json:
        session.out.document({"feature": name, "is_on": seen.is_on})
    else:
        session.out.line(f"{name}: {'on' if seen.is_on else 'off'} ({_origin(session, seen)})")
