"""The repository as these tests see it: its root and the files that belong to it."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "ade"
# What is made and not written; the same names as in .gitignore.
_MADE_FOLDERS = {".git", ".venv", ".ade", ".scratch", ".hypothesis", ".fuzz", "__pycache__", "build", "dist"}


def written_files(folder: Path = ROOT) -> Iterator[Path]:
    """Every file that people write, and none that tools make."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not _is_made(path):
                yield from written_files(path)
        elif ".db" not in path.suffixes and path.suffix != ".pyc":
            yield path


def _is_made(folder: Path) -> bool:
    is_environment = (folder / "pyvenv.cfg").exists()
    return folder.name in _MADE_FOLDERS or folder.name.endswith(("_cache", ".egg-info", ".blobs")) or is_environment


def shown(path: Path) -> str:
    """A path as a failing test should show it."""
    return str(path.relative_to(ROOT))
