"""Several programs that open a new store at the same moment: nobody takes what another has just made for foreign."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ade.stores.sqlite import audit, connection, schema


class Interrupted:
    """A connection that lets somebody else act as soon as it has told the owner of the file."""

    def __init__(self, inner: apsw.Connection, act: Callable[[], object]) -> None:
        self._inner = inner
        self.other = threading.Thread(target=act)

    def pragma(self, name: str, *value: Any) -> Any:
        answer = self._inner.pragma(name, *value)
        if not self.other.ident:
            self.other.start()
            self.other.join(0.3)  # it is done by then, or waits until nobody looks
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("kind", ["store", "audit copy"])
def test_a_file_that_another_one_makes_meanwhile_is_no_foreign_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    inner = apsw.Connection(str(path))
    open_file: Callable[[], apsw.Connection] = (
        (lambda: connection.connect(path)) if kind == "store" else (lambda: audit._connect(str(path)))
    )
    watched: Any = Interrupted(inner, lambda: open_file().close())

    (schema.check_schema if kind == "store" else audit._set_up)(watched)

    watched.other.join(10)
    assert not watched.other.is_alive()
    inner.close()
    open_file().close()
