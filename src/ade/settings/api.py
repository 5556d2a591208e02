"""HTTP operations on runtime settings and features: list, get, change, and reset them."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.accounts.model import Permission
from ade.server.context import RequestContext, Services, acting, cut
from ade.server.operation import ETagUse, ReadRule, operation
from ade.server.pagination import Page
from ade.server.request_types import Form, PageSize
from ade.settings import runtime
from ade.settings.runtime import FEATURES, IN_FILES, SETTINGS, stored_features, stored_values
from ade.stores.ports import Stores


class SettingOrigin(StrEnum):
    """Where the value of a setting comes from."""

    STORE = auto()  # set at run time, for all processes
    SETTINGS = auto()  # a settings layer of the responding process: file, environment, or option
    DEFAULT = auto()


class SettingView(Struct, frozen=True, kw_only=True):
    """A number within bounds, both included. `version` is 0 where the store says nothing."""

    name: str
    value: float
    origin: SettingOrigin
    default: float
    least: float
    most: float
    about: str
    version: int
    changed_by: str | None = None
    changed_at: int | None = None


class FeatureView(Struct, frozen=True, kw_only=True):
    """Something that is on or off. `version` is 0 where the store says nothing."""

    name: str
    is_on: bool
    origin: SettingOrigin
    default: bool
    about: str
    version: int
    changed_by: str | None = None
    changed_at: int | None = None


async def view_settings(stores: Stores) -> dict[str, SettingView]:
    """Return all runtime settings by name."""
    stored = await stored_values(stores)
    views: dict[str, SettingView] = {}
    for name, definition in SETTINGS.items():
        entry = stored.get(name)
        views[name] = SettingView(
            name=name,
            value=float(definition.default if entry is None else entry.record.value),
            origin=SettingOrigin.DEFAULT if entry is None else SettingOrigin.STORE,
            default=float(definition.default),  # always a float in the response
            least=float(definition.least),
            most=float(definition.most),
            about=definition.about,
            version=0 if entry is None else entry.version,
            changed_by=None if entry is None else entry.record.by,
            changed_at=None if entry is None else entry.record.at,
        )
    return views


async def view_features(stores: Stores, in_files: Mapping[str, bool]) -> dict[str, FeatureView]:
    """Return all features by name. `in_files` contains those that the settings of this process configure."""
    stored = await stored_features(stores)
    views: dict[str, FeatureView] = {}
    for name, definition in FEATURES.items():
        entry, configured = stored.get(name), in_files.get(name, definition.default)
        origin = SettingOrigin.DEFAULT if configured == definition.default else SettingOrigin.SETTINGS
        views[name] = FeatureView(
            name=name,
            is_on=configured if entry is None else bool(entry.record.value),
            origin=origin if entry is None else SettingOrigin.STORE,
            default=definition.default,
            about=definition.about,
            version=0 if entry is None else entry.version,
            changed_by=None if entry is None else entry.record.by,
            changed_at=None if entry is None else entry.record.at,
        )
    return views


# Request forms.


class ListSettings(Form):
    """A page of the run-time settings."""

    cursor: str | None = None
    limit: PageSize = 50


class SetSetting(Form):
    """The new value of a run-time setting."""

    value: float


class ListFeatures(Form):
    """A page of the features."""

    cursor: str | None = None
    limit: PageSize = 50


class SwitchFeature(Form):
    """Whether to enable or disable a feature."""

    is_on: bool


# Features, enabled or disabled for all processes.


@operation("GET /features", reads=ReadRule.SHARED, permission=Permission.READ)
async def list_features(services: Services, request: RequestContext, query: ListFeatures) -> Page[FeatureView]:
    """Features, and whether they are on."""
    return cut("features", query, list((await _seen(services)).values()))


@operation("GET /features/{feature}", reads=ReadRule.SHARED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_feature(services: Services, request: RequestContext, feature: str) -> FeatureView:
    """One feature."""
    runtime.check_feature(feature)
    return (await _seen(services))[feature]


@operation("PUT /features/{feature}", permission=Permission.ADMINISTER, tag=ETagUse.HEEDED)
async def switch_feature(services: Services, request: RequestContext, feature: str, body: SwitchFeature) -> FeatureView:
    """Switch a feature on or off."""
    before = await get_feature(services, request, feature)
    seen = request.expected_version(before.version)
    await runtime.switch(services.stores, feature, body.is_on, actor=acting(request), seen=seen)
    return await get_feature(services, request, feature)


@operation("DELETE /features/{feature}", permission=Permission.ADMINISTER)
async def unset_feature(services: Services, request: RequestContext, feature: str) -> FeatureView:
    """Go back to its default."""
    runtime.check_feature(feature)
    await runtime.unset(services.stores, feature, actor=acting(request))
    return await get_feature(services, request, feature)


async def _seen(services: Services) -> dict[str, FeatureView]:
    configured = dict(services.settings.items())
    return await view_features(services.stores, {feature: bool(configured[name]) for feature, name in IN_FILES.items()})


# Runtime settings: numbers in the store, for all processes.


@operation("GET /config", reads=ReadRule.SHARED, permission=Permission.READ)
async def list_settings(services: Services, request: RequestContext, query: ListSettings) -> Page[SettingView]:
    """Run-time settings, and where their values come from."""
    return cut("settings", query, list((await view_settings(services.stores)).values()))


@operation("GET /config/{setting}", reads=ReadRule.SHARED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_setting(services: Services, request: RequestContext, setting: str) -> SettingView:
    """One setting."""
    runtime.check_setting(setting)
    return (await view_settings(services.stores))[setting]


@operation("PUT /config/{setting}", permission=Permission.ADMINISTER, tag=ETagUse.HEEDED)
async def set_setting(services: Services, request: RequestContext, setting: str, body: SetSetting) -> SettingView:
    """Change a setting while all goes on."""
    before = await get_setting(services, request, setting)
    seen = request.expected_version(before.version)
    await runtime.set_value(services.stores, setting, body.value, actor=acting(request), seen=seen)
    return await get_setting(services, request, setting)


@operation("DELETE /config/{setting}", permission=Permission.ADMINISTER)
async def unset_setting(services: Services, request: RequestContext, setting: str) -> SettingView:
    """Go back to its default."""
    runtime.check_setting(setting)
    await runtime.unset(services.stores, setting, actor=acting(request))
    return await get_setting(services, request, setting)
