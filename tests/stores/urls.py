"""URLs of empty stores, one for each kind that ADE runs on."""

from pathlib import Path

from tests.servers.pool import POOL


def store_url(kind: str, folder: Path) -> str:
    """The URL of an empty store of this kind. A store in a file is in the folder."""
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder / 'ade.db'}"
        case "cluster":
            return POOL.cluster("valkey").url
        case _:
            return POOL.standalone(kind).url
