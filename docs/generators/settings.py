"""Every setting with its default, its environment variable and its meaning, as `ade.settings` declares them."""

import inspect
from collections.abc import Iterator
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from ade.settings import ENV_PREFIX, KNOWN, Settings
from ade.settings.runtime import FEATURES, SETTINGS
from docs.generators.tables import table

_HIGHEST_SHOWN = 1_000


def settings_tables() -> str:
    """A table for each section, in the order of the code."""
    sections = dict.fromkeys(name.partition(".")[0] for name in KNOWN)
    return "\n\n".join(_section(section) for section in sections)


def _section(section: str) -> str:
    about = inspect.cleandoc(type(getattr(Settings(), section)).__doc__ or "")
    rows = [_row(name, field) for name, field in KNOWN.items() if name.startswith(f"{section}.")]
    return f"### [{section}]\n\n{about}\n\n{table(['setting', 'default', 'bounds', 'meaning'], rows)}"


def _row(name: str, field: FieldInfo) -> list[str]:
    return [f"`{name}`", f"`{_shown(_default(field))}`", _bounds(field), meaning(field)]


def _default(field: FieldInfo) -> object:
    """A mapping is made anew each time, so it has none by itself."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper().replace(".", "__")


def meaning(field: FieldInfo) -> str:
    """What the code says about a setting; one without a sentence stops the build."""
    [sentence] = [note.description for note in _notes(field) if note.description]
    return str(sentence)


def _notes(field: FieldInfo) -> Iterator[Any]:
    yield from field.type.__metadata__


def _bounds(field: FieldInfo) -> str:
    """Without the upper ones that only catch slips of the keyboard."""
    words = {"ge": "from", "gt": "above", "le": "to"}
    return " ".join(
        f"{word} {limit}"
        for sign, word in words.items()
        for note in _notes(field)
        if (limit := getattr(note, sign)) is not None and limit <= _HIGHEST_SHOWN
    )


def _shown(value: object) -> str:
    """As it would be written in a settings file."""
    match value:
        case None:
            return "unset"
        case bool():
            return str(value).lower()
        case dict():
            return "{}"
        case tuple():
            return f"[{', '.join(_shown(each) for each in value)}]"
        case str():
            return f'"{value}"'
        case _:
            return f"{value:g}" if isinstance(value, float) and value < 1e6 else f"{value:.0f}"


def run_time_tables() -> str:
    """What is kept in the store."""
    values = (
        [f"`{name}`", f"`{known.default:.10g}`", f"from {known.least:.10g} to {known.most:.10g}", known.about]
        for name, known in SETTINGS.items()
    )
    switches = ([f"`{name}`", "on" if known.default else "off", known.about] for name, known in FEATURES.items())
    tables = (
        table(["setting", "default", "bounds", "meaning"], values),
        table(["feature", "default", "meaning"], switches),
    )
    return "\n\n".join(tables)
