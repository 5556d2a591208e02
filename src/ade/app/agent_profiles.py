"""Which agent types there are: the built-in ones, those of the settings, and those of Markdown files."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ade.core.agent_runs.built_in import BUILT_IN, COMMAND
from ade.core.agent_runs.profile_reading import profile_from_markdown, read_profiles
from ade.core.agent_runs.profiles import Profile
from ade.core.errors import InvalidProfile, UnknownName
from ade.settings import AgentSettings

ALL = "*"
_MOST_FILES = 1_000
_LARGEST_FILE = 1024 * 1024


def known_profiles(settings: AgentSettings) -> dict[str, Profile]:
    """Every type there is: the built-in ones, those of the settings, and those of Markdown files, which win.

    Raises InvalidProfile.
    """
    known = read_profiles(settings.profiles, "agents.profiles")
    for path in _markdown_files(settings.folders):
        profile = profile_from_markdown(_text_of(path), known, place=str(path))
        known[profile.name] = profile
    return known


def chosen_profiles(settings: AgentSettings, types: Sequence[str] | None = None) -> list[Profile]:
    """Those that shall be run. Raises UnknownName for a type there is not, InvalidProfile.

    Unless types are named, a type whose program is not installed is left to other workers.
    """
    known = known_profiles(settings)
    wanted = list(settings.types if types is None else types)
    if ALL in wanted:
        return [profile for profile in known.values() if profile is not COMMAND and is_installed(profile)]
    if not wanted:
        own = [profile for name, profile in known.items() if profile is not BUILT_IN.get(name)]
        return [profile for profile in own if is_installed(profile)]
    for name in wanted:
        if name not in known:
            raise UnknownName(f"there is no agent type {name[:100]!r}; known are {', '.join(sorted(known))}")
    return [known[name] for name in wanted]


def is_installed(profile: Profile) -> bool:
    return shutil.which(profile.command[0]) is not None


def _markdown_files(folders: Iterable[str]) -> list[Path]:
    """By name, so that of two files for one type always the same one counts: the last."""
    found: list[Path] = []
    for folder in folders:
        place = Path(folder).expanduser()
        try:
            found += sorted(path for path in place.iterdir() if path.suffix == ".md" and path.is_file())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InvalidProfile(f"{place} cannot be read: {error.strerror}") from error
    return found[:_MOST_FILES]


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidProfile(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise InvalidProfile(f"{path} is larger than {_LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProfile(f"{path} is not written in UTF-8: {error.reason}") from error
