"""The commands `ade config` and `ade features`: settings in force, run-time settings, and feature switches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from ade.accounts.model import NotAuthenticated
from ade.cli.command import group
from ade.cli.identity import as_option
from ade.cli.output import Cell, Row, all_of, compact
from ade.common.text import without_passwords
from ade.errors import NotPermitted, ServerUnreachable, StoreError
from ade.settings import DEFAULT
from ade.settings.api import FeatureView, SettingOrigin, SettingView
from ade.settings.runtime import IN_FILES, SETTINGS, check_feature, check_setting

if TYPE_CHECKING:
    from ade.cli.session import Session


STORE = str(SettingOrigin.STORE)
_Known = list[tuple[str, object, str]]  # name, value, origin


@group("config")
def config() -> None:
    """Show the settings in force and where they come from; change those that are stored."""


@config.command("show", reads=True)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--changed", is_flag=True, help="Hide settings with their default values.")
async def show(session: "Session", origin: bool, changed: bool) -> None:
    """Show every setting, as all layers together have it: defaults, files, environment, options, the app, the store.

    Those of this machine; where a server was named, what is set at run time is the server's. Passwords in URLs are
    left out.
    """
    known = [one for one in _all(session, await _in_store(session)) if not changed or one[2] != DEFAULT]
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


def _all(session: "Session", stored: "_StoredSettings") -> _Known:
    """Return every setting. Values in the store take precedence over all layers."""
    loaded = session.loaded
    known: _Known = [(name, without_passwords(value), loaded.origins[name]) for name, value in loaded.settings.items()]
    switched = {IN_FILES[feature]: is_on for feature, is_on in stored.switches.items() if feature in IN_FILES}
    known = [(name, switched[name], STORE) if name in switched else (name, value, at) for name, value, at in known]
    known += [(name, one.value, str(one.origin)) for name, one in stored.values.items()]
    return (
        known if stored.values else [*known, *((name, float(one.default), DEFAULT) for name, one in SETTINGS.items())]
    )


class _StoredSettings(NamedTuple):
    values: Mapping[str, SettingView]  # every run-time setting; empty if there is nothing to read from
    switches: Mapping[str, bool]  # features that an account has switched


async def _in_store(session: "Session") -> _StoredSettings:
    """Return what a store or a server contains; nothing if it does not exist or is unavailable."""
    is_local = session.server is None
    if not is_local or (session.settings.store.url != "memory://" and session.has_store()):
        try:
            async with session.api() as api:
                values = await all_of(api, api.list_settings)
                features = await all_of(api, api.list_features)
            return _StoredSettings(
                {one.name: one for one in values},
                {one.name: one.is_on for one in features if one.origin is SettingOrigin.STORE},
            )
        except (StoreError, ServerUnreachable, NotAuthenticated, NotPermitted) as error:
            session.out.note(f"Run-time settings could not be read: {error.detail}")
    return _StoredSettings({}, {})


@config.command("get", reads=True)
@click.argument("name")
async def get(session: "Session", name: str) -> None:
    """Print one setting, of any layer or of the store."""
    if session.server is not None and name not in session.loaded.origins:
        async with session.api() as api:
            found = await api.get_setting(name)
        _print_setting(session, found, _shown(found.value))
        return
    stored = await _in_store(session)
    if name in stored.values:
        _print_setting(session, stored.values[name], _shown(stored.values[name].value))
        return
    known = {each: (value, place) for each, value, place in _all(session, stored)}
    if name not in known:
        check_setting(name)
    value, place = known[name]
    _print_setting(session, {"name": name, "value": value, "origin": place}, _shown(value))


@config.command("set")
@click.argument("name")
@click.argument("value", type=float)
@as_option
async def set_value(session: "Session", name: str, value: float) -> None:
    """Store a run-time setting, for all processes, from now on. Others belong in a settings file."""
    if session.server is None:
        check_setting(name)  # first, so that a typo does not create a store
    async with session.api(must_exist=False) as api:
        after = await api.set_setting(name, value=value)
    _print_setting(session, after, f"{name} = {_shown(after.value)} ({after.origin})")


@config.command("unset")
@click.argument("name")
@as_option
async def unset(session: "Session", name: str) -> None:
    """Remove a run-time setting from the store, so that files and defaults apply again."""
    async with session.api() as api:
        after = await api.unset_setting(name)
    _print_setting(session, after, f"{name} = {_shown(after.value)} ({after.origin})")


def _print_setting(session: "Session", setting: SettingView | dict[str, object], text: str) -> None:
    if session.out.as_json:
        session.out.document(setting)
    else:
        session.out.line(text)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


@group("features", bare="list")
def features() -> None:
    """Features that are switched at run time. `ade features` alone lists them."""


@features.command("list", reads=True)
async def list_features(session: "Session") -> None:
    """List all features, whether they are on, and whether this was set explicitly."""
    async with session.api() as api:
        known = await all_of(api, api.list_features)
    if session.out.as_json:
        session.out.items(known)
        return
    rows: list[Row] = [
        (one.name, Cell("on", "green") if one.is_on else Cell("off", "yellow"), _origin(session, one), one.about)
        for one in known
    ]
    session.out.table(("feature", "state", "origin", "meaning"), rows)


def _origin(session: "Session", seen: FeatureView) -> str:
    """Return where the state comes from: the store, or a settings layer. The layers of a server are unknown here."""
    if seen.origin is SettingOrigin.STORE or session.server is not None or seen.name not in IN_FILES:
        return str(seen.origin)
    return session.loaded.origins[IN_FILES[seen.name]]


@features.command("enable")
@click.argument("name")
@as_option
async def enable(session: "Session", name: str) -> None:
    """Switch a feature on, for all processes of the store."""
    await _switch(session, name, True)


@features.command("disable")
@click.argument("name")
@as_option
async def disable(session: "Session", name: str) -> None:
    """Switch a feature off, for all processes of the store."""
    await _switch(session, name, False)


async def _switch(session: "Session", name: str, is_on: bool) -> None:
    if session.server is None:
        check_feature(name)  # first, so that a typo does not create a store
    async with session.api(must_exist=False) as api:
        switched = await api.switch_feature(name, is_on=is_on)
    if session.out.as_json:
        session.out.document(switched)
    else:
        session.out.line(f"{name}: {'on' if is_on else 'off'}")


@features.command("unset")
@click.argument("name")
@as_option
async def unset_feature_command(session: "Session", name: str) -> None:
    """Remove the stored state of a feature, so that files and defaults apply again."""
    async with session.api() as api:
        seen = await api.unset_feature(name)
    if session.out.as_json:
        session.out.document(seen)
    else:
        session.out.line(f"{name}: {'on' if seen.is_on else 'off'} ({_origin(session, seen)})")
