"""A real server on the shop's store, and `ade` called from elsewhere: a folder without store, app or settings."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from tests.accounts.issued_tokens import PLENTY, token_for, token_of
from tests.cli.conftest import STORE, Answer, Call, with_stores
from tests.cli.processes import started
from tests.domain import Role, User

_MOST_LOOKS = 5


@dataclass
class Shop:
    """The same shop, seen from its own machine and through its server."""

    ade: Call
    url: str
    here: Path  # where the store is
    elsewhere: Path
    environ: pytest.MonkeyPatch
    server: Popen[str]
    tokens: dict[str, str] = field(default_factory=dict)

    def local(self, *arguments: str, stdin: str = "") -> Answer:
        """The command on the store itself."""
        return self.ade(*arguments, stdin=stdin)

    def remote(self, *arguments: str, by: str = Role.ADMIN, stdin: str = "") -> Answer:
        """The command through the server, with the token of `by`, where nothing else could answer it."""
        said = {"ADE_CLIENT__URL": self.url, "ADE_TOKEN": self.token(by), "HOME": str(self.elsewhere)}
        with self.environ.context() as patch:
            for name in [name for name in os.environ if name.startswith("ADE_")]:
                patch.delenv(name)
            for name, value in said.items():
                patch.setenv(name, value)
            patch.chdir(self.elsewhere)
            answer = self.ade(*arguments, stdin=stdin)
        assert not list(self.elsewhere.glob("*.db")), "it has made a store of its own"
        return answer

    def environment(self, by: str = Role.ADMIN) -> dict[str, str]:
        """For commands that are processes of their own: `started(shop.elsewhere, ..., **shop.environment())`."""
        return {"ADE_CLIENT__URL": self.url, "ADE_TOKEN": self.token(by)}

    def same(self, *arguments: str, by: str = Role.ADMIN, but: Mapping[str, str] | None = None) -> Answer:
        """A command that only looks, both ways: the same is said, up to what `but` says may be different.

        How long ago something was may be told in one second here and in the next one there: then both are asked again.
        """
        for _ in range(_MOST_LOOKS):
            local, remote = self.local(*arguments), self.remote(*arguments, by=by)
            for theirs, ours in (but or {}).items():
                remote = Answer(remote.code, remote.out.replace(theirs, ours), remote.err.replace(theirs, ours))
            if remote == local:
                break
        assert remote == local
        return remote

    def stop(self) -> None:
        """The server is gone from one moment to the next."""
        self.server.kill()
        self.server.wait(60)

    def token(self, by: str) -> str:
        """A token with all that the role of this name allows, of the account `the-ROLE`, made when first needed."""
        if by not in self.tokens:
            self.tokens[by] = with_stores(lambda stores: token_for(stores, by))
        return self.tokens[by]

    def person(self, name: str, *roles: str) -> None:
        """An account of a person; `by=name` is whom it acts for from then on."""
        self.tokens[name] = with_stores(lambda stores: token_of(stores, User(id=name, roles=frozenset(roles))))


@pytest.fixture
def served(
    shop: Call, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    """A shop whose store is there and empty, and `ade serve` beside it."""
    with started(folder, "serve", "--port", "0", "--json", "--store", STORE, **PLENTY) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        hello = server.stdout.readline()
        assert hello, server.stderr.read()
        url = msgspec.json.decode(hello)["url"]
        yield Shop(shop, url, folder, tmp_path_factory.mktemp("elsewhere"), monkeypatch, server)
