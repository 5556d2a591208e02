"""What must hold at every moment, asked of the database itself. Each file in sql/invariants is one of them."""

from functools import cache
from pathlib import Path

import apsw

_FOLDER = Path(__file__).parent / "sql" / "invariants"


@cache
def _statements() -> tuple[tuple[str, str], ...]:
    found = [(path.stem, path.read_text(encoding="utf-8")) for path in _FOLDER.iterdir()]
    return tuple(sorted(found))


def broken_invariants(connection: apsw.Connection) -> list[str]:
    """A sentence for each violation, at most a few for each invariant."""
    return [
        f"{name}: {sentence}"
        for name, statement in _statements()
        for (sentence,) in connection.execute(statement).fetchall()
    ]
