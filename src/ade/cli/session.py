"""One run of `ade`: what was asked for on the command line, and what follows from it, made when first needed."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from ade.app.ade import Ade
    from ade.cli.identity import ServerTarget
    from ade.cli.output import CommandOutput
    from ade.client.client import Client
    from ade.server.operations import RequestContext, Services
    from ade.settings import LoadedSettings, Settings
    from ade.stores.ports import Stores
    from ade.tasks.payloads import Payloads

T = TypeVar("T")


@dataclass
class SharedOptions:
    """The shared options as given."""

    url: str | None = None
    profile: str | None = None
    store: str | None = None
    allow_volatile: bool = False
    app: str | None = None
    config: str | None = None
    json: bool = False
    quiet: bool = False
    acting_as: str | None = None


class Session:
    def __init__(self) -> None:
        self.choices = SharedOptions()
        self.flags: dict[str, object] = {}  # settings given as options of the command, by dotted name
        self._looked_at: Stores | None = None  # opened for reading alone
        self.is_here = False  # the command is about this machine, whatever server the settings name

    @cached_property
    def out(self) -> "CommandOutput":
        from ade.cli.output import CommandOutput

        return CommandOutput(as_json=self.choices.json, quiet=self.choices.quiet)

    @cached_property
    def loaded(self) -> "LoadedSettings":
        """The settings of all layers, and where each comes from. What an app says counts where no layer does."""
        from ade.settings import DEFAULT, LoadedSettings, load

        files = self._files()
        flags = {**self.flags, "store.url": self.choices.store}
        flags |= {"client.url": self.choices.url, "client.profile": self.choices.profile}
        if self.choices.allow_volatile:
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
        if self._bare_app.url is not None and self.choices.store is None:
            own["store.url"] = self._bare_app.url  # programs that use the app go there too
        settings = load(flags={**flags, **own}, files=files).settings
        return LoadedSettings(settings, {**loaded.origins, **dict.fromkeys(own, f"app {self.app_spec}")})

    def _files(self) -> "list[Path] | None":
        if self.choices.config is None:
            return None
        from pathlib import Path

        from ade.settings import standard_files

        return [*standard_files(os.environ), Path(self.choices.config)]

    @property
    def settings(self) -> "Settings":
        return self.loaded.settings

    @property
    def app_spec(self) -> str | None:
        """Which app was named, by option or environment."""
        return self.choices.app or os.environ.get("ADE_APP") or None

    @cached_property
    def _bare_app(self) -> "Ade":
        from ade.cli.app_loader import load_app

        return load_app(self.app_spec)

    @cached_property
    def app(self) -> "Ade":
        """The app, with the settings that hold for this command. Raises BadApp."""
        app = self._bare_app
        app.settings = self.settings
        return app

    @cached_property
    def any_app(self) -> "Ade":
        """The app that was named or, where none was, one without tasks."""
        from ade.app.ade import Ade

        return self.app if self.app_spec is not None else Ade(settings=self.settings)

    @cached_property
    def server(self) -> "ServerTarget | None":
        """Which server to talk to; None: the store of this machine. Raises SettingsError."""
        named = [f"--{name}" for name in ("url", "profile", "store") if getattr(self.choices, name) is not None]
        if len(named) > 1:
            import click

            raise click.UsageError(f"{' and '.join(named)} do not go together: name one place.")
        if self.is_here or named == ["--store"]:
            return None  # who names a store means it
        client = self.settings.client
        if not client.url and not client.profile:
            return None
        from ade.cli.identity import server_of

        return server_of(client, prefers_url=self.choices.url is not None)

    def check_local(self) -> None:
        """Raises NeedsStore if a server was named."""
        if self.server is not None:
            from ade.errors import NeedsStore

            raise NeedsStore(
                f"this is done on the store itself, not through {self.server.url}; run it where the store is, without"
                " --url and --profile"
            )

    @asynccontextmanager
    async def api(self, *, must_exist: bool = True, timeout_s: float = 30.0) -> "AsyncIterator[Client]":
        """All operations, on the server that was named or else on the store of this machine.

        `timeout_s` is for one answer of a server.
        """
        from ade.client.client import Client

        if self.server is not None:
            self._check_nobody_else(self.server)
            from ade.client.http_transport import HttpTransport

            transport = HttpTransport(
                self.server.url,
                token=self.server.token,
                timeout_s=timeout_s,
                allow_plain=self.server.allow_plain,
            )
            async with Client(transport) as client:
                gc.enable()
                yield client
            return
        from ade.client.store_transport import StoreTransport

        asked = self._asked()
        async with self.stores(must_exist=must_exist) as stores:
            yield Client(StoreTransport(self._office(stores), asked))

    @asynccontextmanager
    async def api_for_new(self) -> "AsyncIterator[tuple[Ade | None, Client]]":
        """For new tasks: all operations, and on a store of this machine the app with what it knows of its tasks."""
        if self.server is not None:
            async with self.api() as client:
                yield None, client
            return
        async with self.open_app() as app:
            yield app, await self.api_of(app)

    async def api_of(self, app: "Ade") -> "Client":
        """All operations on the store of an open app."""
        from ade.client.client import Client
        from ade.client.store_transport import StoreTransport
        from ade.composition.app_store import services_of_app

        return Client(StoreTransport(services_of_app(app, await app.open()), self._asked()))

    def _check_nobody_else(self, server: "ServerTarget") -> None:
        """Raises NeedsStore: a server knows by the token who acts."""
        if self.choices.acting_as is not None:
            from ade.errors import NeedsStore

            raise NeedsStore(f"--as is for a store of this machine; {server.url} knows by the token who you are")

    def _asked(self) -> "RequestContext":
        """Who acts on a local store, where whoever can open it may do all."""
        from ade.cli.identity import acting
        from ade.server.operations import RequestContext

        return RequestContext(actor=self.actor if self.choices.acting_as is None else acting(self), author=acting(self))

    def _office(self, stores: "Stores") -> "Services":
        if self._looked_at is not None:
            from ade.composition.read_only import read_only_services

            return read_only_services(stores, self.settings)
        from ade.composition.app_store import services_on_store

        return services_on_store(stores, self.settings)

    @asynccontextmanager
    async def open_app(self) -> "AsyncIterator[Ade]":
        """The same with its store open inside the block, and made if there was none."""
        self.check_local()
        async with self.any_app as app:
            gc.enable()
            yield app

    @asynccontextmanager
    async def open_bare_app(self) -> "AsyncIterator[Ade]":
        """An app without tasks on the same store, whatever app was named."""
        self.check_local()
        from ade.app.ade import Ade

        async with Ade(settings=self.settings) as app:
            gc.enable()
            yield app

    def has_store(self) -> bool:
        from ade.composition.stores import store_exists

        return store_exists(self.settings.store.url)

    @asynccontextmanager
    async def stores(self, *, must_exist: bool = True) -> "AsyncIterator[Stores]":
        """Whoever looks at a store or changes what is in it makes none: an empty one would hide a wrong URL."""
        self.check_local()
        from ade.composition.stores import open_stores

        url = self.settings.store.url
        stores = self._looked_at or await open_stores(url, self.settings, must_exist=must_exist)
        gc.enable()  # all is loaded; from here on there may be garbage
        try:
            yield stores
        finally:
            await stores.close()

    def look(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out work that only reads. On a file it needs no event loop, whose loading would be half the time."""
        from ade.composition.stores import open_read_only

        try:
            if self.server is None:
                self._looked_at = open_read_only(self.settings.store.url, self.settings)
        except BaseException:
            work.close()  # it never began
            raise
        return self.run(work) if self._looked_at is None else _without_loop(work)

    def payloads(self, stores: "Stores") -> "Payloads":
        from ade.tasks.payloads import Payloads

        store = self.settings.store
        return Payloads(stores.blobs, store.inline_limit_kb << 10, store.payload_limit_mb << 20)

    @property
    def actor(self) -> str:
        """Who to name in the event log."""
        from ade.cli.identity import login_name

        return f"cli:{login_name()}"

    @staticmethod
    def run(work: Coroutine[Any, Any, T]) -> T:
        """Carry a command's work out; Ctrl-C cancels it and closes what is open."""
        import asyncio

        return asyncio.run(work)

    @property
    def is_interactive(self) -> bool:
        """Whether somebody can answer a question."""
        return not self.choices.json and sys.stdin.isatty() and sys.stderr.isatty()


def _without_loop(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits returns."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a store opened to be looked at made its caller wait")
