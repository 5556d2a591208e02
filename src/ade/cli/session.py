"""The session of one `ade` command: its options, and everything derived from them on first use."""

import asyncio
import gc
import os
import pwd
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ade.accounts.model import normal_id
from ade.cli.command import SharedOptions
from ade.cli.identity import ServerTarget, server_of
from ade.cli.output import CommandOutput
from ade.client.client import Client, connect
from ade.client.store_transport import StoreTransport
from ade.common.text import without_password
from ade.composition.stores import open_read_only, open_stores, read_only_services, store_exists
from ade.errors import NeedsStore
from ade.server.context import RequestContext, Services
from ade.settings import DEFAULT, USER_VARIABLE, LoadedSettings, Settings, load, standard_files
from ade.stores.ports import Stores

if TYPE_CHECKING:  # most commands need no app
    from ade.app.ade import Ade

T = TypeVar("T")
_LOGIN_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")


class Session:
    """What a command works with: settings, output, and the operations on a server or a store."""

    def __init__(self, options: SharedOptions) -> None:
        self.options = options
        self.flags: dict[str, object] = {}  # settings given as options of the command, by dotted name
        self._read_only: Stores | None = None  # opened read-only
        self.is_here = False  # the command applies to this machine, even if the settings name a server

    @cached_property
    def out(self) -> CommandOutput:
        return CommandOutput(as_json=self.options.json, quiet=self.options.quiet)

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings of all layers, and their origins. Settings of an app apply where no layer sets a value."""
        files = self._files()
        flags = {**self.flags, "store.url": self.options.store}
        flags |= {"client.url": self.options.url, "client.profile": self.options.profile}
        if self.options.allow_volatile:
            flags["redis.allow_volatile"] = True
        loaded = load(flags=flags, files=files)
        if self.app_spec is None:
            return loaded
        known = dict(loaded.settings.items())
        own = {
            name: value
            for name, value in self._bare_app.settings.items()
            if loaded.origins[name] == DEFAULT and value != known[name]
        }
        if self._bare_app.url is not None and self.options.store is None:
            own["store.url"] = self._bare_app.url  # other programs that use the app connect there as well
        settings = load(flags={**flags, **own}, files=files).settings
        return LoadedSettings(settings, {**loaded.origins, **dict.fromkeys(own, f"app {self.app_spec}")})

    def _files(self) -> list[Path] | None:
        config = self.options.config
        return None if config is None else [*standard_files(os.environ), Path(config)]

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def app_spec(self) -> str | None:
        """The app that was named, by option or environment."""
        return self.options.app or os.environ.get("ADE_APP") or None

    @cached_property
    def _bare_app(self) -> "Ade":
        from ade.cli.app_loader import load_app

        return load_app(self.app_spec)

    @cached_property
    def app(self) -> "Ade":
        """The app, with the settings that apply to this command. Raises BadApp."""
        app = self._bare_app
        app.settings = self.settings
        return app

    @cached_property
    def any_app(self) -> "Ade":
        """The named app or, if none was named, an app without tasks."""
        return self.app if self.app_spec is not None else self._empty_app()

    def _empty_app(self) -> "Ade":
        from ade.app.ade import Ade

        return Ade(settings=self.settings)

    @cached_property
    def server(self) -> ServerTarget | None:
        """The server to connect to; None for the local store. Raises SettingsError."""
        named = [f"--{name}" for name in ("url", "profile", "store") if getattr(self.options, name) is not None]
        if len(named) > 1:
            raise click.UsageError(f"{' and '.join(named)} are mutually exclusive.")
        if self.is_here or named == ["--store"]:
            return None  # a named store takes precedence over the server of the settings
        client = self.settings.client
        if not client.url and not client.profile:
            return None
        return server_of(client, prefers_url=self.options.url is not None)

    def check_local(self) -> None:
        """Raise NeedsStore if a server was named."""
        if self.server is not None:
            raise NeedsStore(
                f"this is done on the store itself, not through {without_password(self.server.url)}; run it where the"
                " store is, without --url and --profile"
            )

    @asynccontextmanager
    async def api(self, *, must_exist: bool = True, timeout_s: float = 30.0) -> AsyncIterator[Client]:
        """Yield a client for the named server, or else for the local store.

        `timeout_s` applies to one response of a server.
        """
        if self.server is not None:
            self._reject_acting_as(self.server)
            server = self.server
            async with connect(
                server.url, token=server.token, timeout=timeout_s, allow_plain=server.allow_plain
            ) as client:
                gc.enable()
                yield client
            return
        request = self._request()
        async with self.stores(must_exist=must_exist) as stores:
            yield Client(StoreTransport(self._services(stores), request))

    @asynccontextmanager
    async def api_for_new(self) -> "AsyncIterator[tuple[Ade | None, Client]]":
        """Yield a client to enqueue tasks and, with a local store, the app with its task definitions."""
        if self.server is not None:
            async with self.api() as client:
                yield None, client
            return
        async with self.open_app() as app:
            yield app, await self.api_of(app)

    async def api_of(self, app: "Ade") -> Client:
        """Return a client for the store of an open app."""
        from ade.composition.app_store import services_of_app

        return Client(StoreTransport(services_of_app(app, await app.open()), self._request()))

    def _reject_acting_as(self, server: ServerTarget) -> None:
        """Reject --as with a server, which identifies the caller by the token. Raises NeedsStore."""
        if self.options.acting_as is not None:
            raise NeedsStore(
                f"--as is for a local store; with {without_password(server.url)}, the token decides who you are"
            )

    def _request(self) -> RequestContext:
        """The caller on a local store, where anyone who can open it has every permission."""
        return RequestContext(actor=self.actor, author=self.account, login=login_name())

    def _services(self, stores: Stores) -> Services:
        if self._read_only is not None:
            return read_only_services(stores, self.settings)
        from ade.composition.app_store import services_on_store

        return services_on_store(stores, self.settings)

    @asynccontextmanager
    async def open_app(self) -> "AsyncIterator[Ade]":
        """Yield the named app, or one without tasks, with its store open. The store is created if it does not exist."""
        self.check_local()
        async with self.any_app as app:
            gc.enable()
            yield app

    @asynccontextmanager
    async def open_bare_app(self) -> "AsyncIterator[Ade]":
        """Yield an app without tasks on the same store, whatever app was named."""
        self.check_local()
        async with self._empty_app() as app:
            gc.enable()
            yield app

    def has_store(self) -> bool:
        """Return whether the store exists."""
        return store_exists(self.settings.store.url)

    @asynccontextmanager
    async def stores(self, *, must_exist: bool = True) -> AsyncIterator[Stores]:
        """Open the store. By default it must exist, because an empty new store would hide a wrong URL."""
        self.check_local()
        gc.enable()  # imports are done; from here on there can be garbage
        if self._read_only is not None:
            yield self._read_only
            return
        stores = await open_stores(self.settings.store.url, self.settings, must_exist=must_exist)
        try:
            yield stores
        finally:
            await stores.close()

    def look(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a read-only command. On a file it needs no event loop, whose loading would take half the time."""
        try:
            if self.server is None:
                self._read_only = open_read_only(self.settings.store.url, self.settings)
        except BaseException:
            work.close()  # it was never started
            raise
        if self._read_only is None:
            return self.run(work)
        try:
            return _without_loop(work)
        finally:
            _without_loop(self._read_only.close())

    @property
    def actor(self) -> str:
        """The actor name in the event log: the account that was named, or else the login name on this machine."""
        return f"cli:{login_name()}" if self._named_account is None else self.account

    @property
    def _named_account(self) -> str | None:
        return self.options.acting_as or os.environ.get(USER_VARIABLE) or self.settings.task.author or None

    @property
    def account(self) -> str:
        """The ID of the account to act as: --as, ADE_USER, the setting task.author, or else the login name.

        Every command that changes something on a local store does so as this account. Raises InvalidAccount.
        """
        return normal_id(self._named_account or login_name())

    @staticmethod
    def run(work: Coroutine[Any, Any, T]) -> T:
        """Run a command on an event loop; Ctrl-C cancels it and closes what is open."""
        _obey_ctrl_c()
        return asyncio.run(work)

    @property
    def is_interactive(self) -> bool:
        """Whether a user can answer a prompt."""
        return not self.options.json and sys.stdin.isatty() and sys.stderr.isatty()


def _obey_ctrl_c() -> None:
    """Let Ctrl-C end a command on a terminal, even if its parent ignores SIGINT and it has inherited that.

    A shell without job control ignores SIGINT in what it starts in the background, and so do all descendants. Such a
    background job reads from /dev/null and keeps ignoring it.
    """
    import signal  # 0.4 ms, which commands without an event loop save

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and sys.stdin is not None and sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _without_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a store opened to be looked at made its caller wait")


def login_name() -> str:
    """Return the login name of the user. Reads the same variables as `getpass` first, because that is slow to load."""
    if name := next((os.environ[variable] for variable in _LOGIN_VARIABLES if os.environ.get(variable)), None):
        return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # the user has no name
        return str(os.getuid())
