"""Which route a path and a method mean."""

import re
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from ade.core.web.problems import RequestRefused, problem_of_status
from ade.core.web.routing import API, WIDE, Route
from ade.core.web.statuses import Fault

E = TypeVar("E")
_LONGEST_VALUE = 500  # no name is longer, and all of it written with % fits into an address
_PLACE = re.compile(r"\{(\w+)\}")
_UNFIT = re.compile(r"[\x00-\x1f\x7f]")


class Way(NamedTuple, Generic[E]):
    """All methods of one path."""

    pattern: re.Pattern[str]
    endpoints: dict[str, E]


class Found(NamedTuple, Generic[E]):
    endpoint: E
    values: tuple[str, ...]  # of the parameters in the path


class NotAllowed(Exception):
    """The path is known, the method is not."""

    def __init__(self, methods: Sequence[str]) -> None:
        self.problem = problem_of_status(405, allow=tuple(methods))
        super().__init__(self.problem.detail)


class Router(Generic[E]):
    """Paths without parameters are looked up, the others tried in the order of the table."""

    def __init__(self, endpoints: Iterable[tuple[Route, E]]) -> None:
        self._plain: dict[str, dict[str, E]] = {}
        self._ways: dict[str, list[Way[E]]] = {}
        by_path: dict[str, dict[str, E]] = {}
        for route, endpoint in endpoints:
            by_path.setdefault(route.path, {})[route.method] = endpoint
            if not route.parameters:
                self._plain[route.path] = by_path[route.path]
        for path, methods in sorted(by_path.items(), key=lambda each: _ends_wide(each[0])):
            if path not in self._plain:
                self._ways.setdefault(_room(path), []).append(Way(_pattern(path), methods))

    def find(self, method: str, path: str) -> Found[E]:
        """Raises RequestRefused (404, 400) and NotAllowed."""
        plain = self._plain.get(path)
        if plain is not None:
            return Found(_of_method(plain, method), ())
        for pattern, endpoints in self._ways.get(_room(path), ()):
            match = pattern.fullmatch(path)
            if match is not None:
                return Found(_of_method(endpoints, method), tuple(map(_value, match.groups())))
        raise RequestRefused(Fault.NOT_FOUND)


def _of_method(endpoints: dict[str, E], method: str) -> E:
    found = endpoints.get("GET" if method == "HEAD" else method)
    if found is None:
        raise NotAllowed(sorted({*endpoints, *(["HEAD"] if "GET" in endpoints else [])}))
    return found


def _room(path: str) -> str:
    """What parts the table: `tasks` of `/api/v1/tasks/...`, `problems` of `/problems/...`."""
    inside = path.removeprefix(f"{API}/")
    return inside.lstrip("/").partition("/")[0]


def _ends_wide(path: str) -> bool:
    """Such a path fits whatever begins like it, so it is tried last."""
    return path.endswith(tuple(f"{{{name}}}" for name in WIDE))


def _pattern(path: str) -> re.Pattern[str]:
    parts = _PLACE.split(path)
    made = [
        re.escape(part) if index % 2 == 0 else "(.+)" if part in WIDE else "([^/]+)" for index, part in enumerate(parts)
    ]
    return re.compile("".join(made))


def _value(text: str) -> str:
    """A value as it was meant. Raises RequestRefused (400)."""
    if "%" in text:
        try:
            text = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise RequestRefused(Fault.BAD_REQUEST, "the address has a part that is not UTF-8") from None
    if len(text) > _LONGEST_VALUE or _UNFIT.search(text):
        raise RequestRefused(
            Fault.BAD_REQUEST, f"a part of an address has at most {_LONGEST_VALUE:,} characters, none of control"
        )
    return text
