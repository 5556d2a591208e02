"""What is set and switched at run time, as it stands, and who says so."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.governance.runtime import kept_switches, kept_values
from ade.governance.runtime_names import FEATURES, SETTINGS
from ade.ports import Stores


class Origin(StrEnum):
    STORE = auto()  # somebody has said so, for all processes
    SETTINGS = auto()  # a layer of the settings of the process that answers: a file, the environment, an option
    DEFAULT = auto()


class SettingView(Struct, frozen=True, kw_only=True):
    """A number within bounds, both included. `version` is 0 where the store says nothing."""

    name: str
    value: float
    origin: Origin
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
    origin: Origin
    default: bool
    about: str
    version: int
    changed_by: str | None = None
    changed_at: int | None = None


async def see_settings(stores: Stores) -> dict[str, SettingView]:
    """Every run-time setting, by name."""
    stored = await kept_values(stores)
    views: dict[str, SettingView] = {}
    for name, known in SETTINGS.items():
        kept = stored.get(name)
        views[name] = SettingView(
            name=name,
            value=float(known.default if kept is None else kept.record.value),
            origin=Origin.DEFAULT if kept is None else Origin.STORE,
            default=float(known.default),  # all alike, however they are written
            least=float(known.least),
            most=float(known.most),
            about=known.about,
            version=0 if kept is None else kept.version,
            changed_by=None if kept is None else kept.record.by,
            changed_at=None if kept is None else kept.record.at,
        )
    return views


async def see_features(stores: Stores, in_files: Mapping[str, bool]) -> dict[str, FeatureView]:
    """Every feature, by name. `in_files` is what the settings of this process say of some of them."""
    stored = await kept_switches(stores)
    views: dict[str, FeatureView] = {}
    for name, known in FEATURES.items():
        kept, said = stored.get(name), in_files.get(name, known.default)
        origin = Origin.DEFAULT if said == known.default else Origin.SETTINGS
        views[name] = FeatureView(
            name=name,
            is_on=said if kept is None else bool(kept.record.value),
            origin=origin if kept is None else Origin.STORE,
            default=known.default,
            about=known.about,
            version=0 if kept is None else kept.version,
            changed_by=None if kept is None else kept.record.by,
            changed_at=None if kept is None else kept.record.at,
        )
    return views
