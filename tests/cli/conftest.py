"""A folder with a small shop app in it, and a way to call `ade` there as a shell would."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from ade import Ade
from ade.cli.app_loader import load_app
from ade.cli.program import run
from ade.settings import load
from ade.testing import TestClock, TestKit, harness
from tests.domain import Stores, open_stores

T = TypeVar("T")
STORE = "sqlite:///shop.db"
SHOP = '''
"""A shop: orders are packed, letters are sent, and sums are made."""

from ade import Ade, Context, SyncContext, Unrecoverable

ade = Ade("sqlite:///shop.db")


@ade.task
async def pack(ctx: Context, item: str, count: int = 1) -> dict[str, int]:
    await ctx.log(f"packing {item}")
    await ctx.progress([count, count])
    return {item: count}


@ade.task
def send(ctx: SyncContext, address: str) -> str:
    ctx.log("looking for the address")
    if address.startswith("nowhere"):
        raise Unrecoverable(f"there is no address {address!r}")
    return f"sent to {address}"


@ade.task(max_attempts=2, queue="slow")
async def wobble(ctx: Context) -> str:
    if ctx.attempt == 1:
        raise RuntimeError("it wobbled")
    return "stands"


@ade.cron("0 3 * * *", tz="Europe/Berlin")
async def tidy() -> None:
    """Every night."""
'''


@dataclass(frozen=True)
class Answer:
    """What a command wrote and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json_lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.lines]

    @property
    def error(self) -> dict[str, Any]:
        """The error of a command that was called with --json."""
        told: dict[str, Any] = msgspec.json.decode(self.err)["error"]
        return told


Call = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with shop.py in it and nothing of this machine's settings in sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ADE_STORE__BALLAST_MB", "0")
    monkeypatch.delenv("ADE_APP", raising=False)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "shop.py").write_text(SHOP)
    quiet = logging.NullHandler()  # or ADE's own would keep a captured stderr for good
    logging.getLogger("ade").addHandler(quiet)
    yield tmp_path
    logging.getLogger("ade").removeHandler(quiet)
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    """As if in a new process."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def ade(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`ade("tasks", "--json")` is `ade tasks --json` in a shell, with its output caught."""

    def call(*arguments: str, stdin: str = "") -> Answer:
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(stdin.encode())))
        forget_modules(folder)
        capsys.readouterr()
        code = run(arguments)
        out, err = capsys.readouterr()
        return Answer(int(code), out, err)

    return call


@pytest.fixture
def new_shop(ade: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same with the shop's app and store named in the environment; nothing was ever enqueued."""
    monkeypatch.setenv("ADE_APP", "shop:ade")
    monkeypatch.setenv("ADE_STORE__URL", STORE)
    return ade


@pytest.fixture
def shop(new_shop: Call) -> Call:
    """A shop whose store is there, and empty."""
    make_store(STORE)
    return new_shop


def make_store(url: str) -> None:
    async def open_and_close() -> None:
        await (await open_stores(url, load().settings)).close()

    asyncio.run(open_and_close())


def shop_app() -> Ade:
    return load_app("shop:ade")


def work(story: Callable[[TestKit], Awaitable[T]] | None = None, url: str = STORE) -> T | None:
    """Let the shop's worker do what is due, and everything that becomes due by waiting for it."""

    async def at_work() -> T | None:
        async with harness(shop_app(), url, TestClock(datetime.now(UTC))) as kit:
            if story is not None:
                return await story(kit)
            await kit.finish(within=60)
            return None

    return asyncio.run(at_work())


def with_stores(story: Callable[[Stores], Awaitable[T]], url: str = STORE) -> T:
    """Look at the store behind the commands' back."""

    async def look() -> T:
        stores = await open_stores(url)
        try:
            return await story(stores)
        finally:
            await stores.close()

    return asyncio.run(look())
