"""What must hold at every moment, asked of the database itself. Each file in sql/invariants is one of them."""

from functools import cache
from importlib.resources import files

import apsw


@cache
def _statements() -> tuple[tuple[str, str], ...]:
    folder = files(__package__) / "sql" / "invariants"
    found = [(path.name.removesuffix(".sql"), path.read_text(encoding="utf-8")) for path in folder.iterdir()]
    return tuple(sorted(found))


def broken_invariants(connection: apsw.Connection) -> list[str]:
    """A sentence for each violation, at most a few for each invariant."""
    return [
        f"{name}: {sentence}"
        for name, statement in _statements()
        for (sentence,) in connection.execute(statement).fetchall()
    ]
