"""Ids of workers behind HTTP: made of the account and a name, so that nobody can be another's worker."""

import re

from ade.core.errors import UnknownWorker

_PREFIX = "http:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def worker_id(account: str, name: str) -> str:
    """The id of an account's worker; its own whole id is as good as the name. Raises UnknownWorker.

    Neither accounts nor names have a colon, so that an id can be read in one way only.
    """
    own = f"{_PREFIX}{account}:"
    short = name.removeprefix(own)
    if not _NAME.fullmatch(short):
        raise UnknownWorker(
            f"{name[:120]!r} is no worker of yours: its name begins with a letter or digit, then letters, digits,"
            " '.', '_' and '-', at most 100"
        )
    return own + short


def owner_of(worker_id: str) -> str | None:
    """The account whose worker behind HTTP this is; None for every other worker."""
    account, _, name = worker_id.removeprefix(_PREFIX).partition(":")
    is_ours = worker_id.startswith(_PREFIX) and account and _NAME.fullmatch(name)
    return account if is_ours else None
