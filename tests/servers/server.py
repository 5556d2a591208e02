"""One real server on loopback, with the options that matter to a store."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.servers.binaries import Binary
from tests.servers.certificates import Certificate, make_certificate
from tests.servers.ports import BUS_OFFSET, HOST
from tests.servers.process import ServerProcess

# The harness's own account wherever passwords are asked for: the users under test may be refused anything.
HARNESS = "harness"
WITHOUT_TLS = "this server is built without TLS"


@dataclass(frozen=True)
class User:
    """An ACL user; `rules` as in `ACL SETUSER`."""

    name: str
    password: str
    rules: str = "~* &* +@all"


@dataclass(frozen=True)
class Options:
    """How a server is set up. Without any: volatile, no password, no TLS, nothing is ever evicted."""

    appendonly: bool = False
    appendfsync: str = "everysec"
    maxmemory: str = "0"
    maxmemory_policy: str = "noeviction"
    password: str | None = None
    users: tuple[User, ...] = ()  # with any, the default user is switched off
    tls: bool = False
    more: tuple[tuple[str, str], ...] = ()  # any other lines of the configuration

    def plus(self, **lines: str) -> "Options":
        """The same with more lines; `_` in a name stands for `-`."""
        added = tuple((name.replace("_", "-"), value) for name, value in lines.items())
        return Options(**{**self.__dict__, "more": self.more + added})

    @property
    def closed(self) -> bool:
        return self.password is not None or bool(self.users)


PLAIN = Options()
DURABLE = Options(appendonly=True)


class Server(ServerProcess):
    """One server process: `with Server(binary) as server: ...`"""

    def __init__(self, binary: Binary, options: Options = PLAIN) -> None:
        if options.tls and not binary.tls:
            raise ValueError(f"{binary}: {WITHOUT_TLS}")
        super().__init__(binary)
        self.options = options
        self.certificate: Certificate | None = make_certificate(self.folder) if options.tls else None

    @property
    def url(self) -> str:
        """How a store under test reaches it: as the first user, else with the password."""
        scheme, query = "redis", ""
        if self.certificate is not None:
            scheme, query = "rediss", f"?ssl_ca_certs={quote(str(self.certificate.file))}"
        return f"{scheme}://{self.login}{self.address}/0{query}"

    @property
    def login(self) -> str:
        """The part of a URL before the host: empty, `:password@` or `user:password@`."""
        if self.options.users:
            user = self.options.users[0]
            return f"{quote(user.name, safe='')}:{quote(user.password, safe='')}@"
        return "" if self.options.password is None else f":{quote(self.options.password, safe='')}@"

    def flush(self) -> None:
        """Forget all data."""
        self.command("FLUSHALL")

    def info(self, section: str) -> dict[str, Any]:
        """What INFO says about one section."""
        found = self.command("INFO", section)
        assert isinstance(found, dict)
        return found

    def replicate(self, primary: "Server") -> None:
        """Become a replica of another server."""
        self.command("REPLICAOF", HOST, primary.port)

    def _configuration(self) -> list[str]:
        options = self.options
        lines = super()._configuration()
        lines += [
            'save ""',
            f"appendonly {'yes' if options.appendonly else 'no'}",
            f"appendfsync {options.appendfsync}",
            f"maxmemory {options.maxmemory}",
            f"maxmemory-policy {options.maxmemory_policy}",
            "repl-diskless-sync-delay 0",
            "enable-debug-command local",
            f"cluster-port {self.port + BUS_OFFSET}",
        ]
        lines += self._port_lines() + self._login_lines()
        return lines + [f"{name} {value}" for name, value in options.more]

    def _port_lines(self) -> list[str]:
        if self.certificate is None:
            return [f"port {self.port}"]
        return [
            "port 0",
            f"tls-port {self.port}",
            f"tls-cert-file {self.certificate.file}",
            f"tls-key-file {self.certificate.key}",
            f"tls-ca-cert-file {self.certificate.file}",
            "tls-auth-clients no",
        ]

    def _login_lines(self) -> list[str]:
        options = self.options
        if not options.closed:
            return []
        lines = [f"user {HARNESS} on >{HARNESS} ~* &* +@all", f"masteruser {HARNESS}", f"masterauth {HARNESS}"]
        lines += [f"user {user.name} on >{user.password} {user.rules}" for user in options.users]
        if options.users:
            lines.append("user default off")
        if options.password is not None:
            lines.append(f"requirepass {options.password}")
        return lines

    def _connection(self) -> dict[str, Any]:
        connection = super()._connection()
        if self.options.closed:
            connection |= {"username": HARNESS, "password": HARNESS}
        if self.certificate is not None:
            connection |= {"ssl": True, "ssl_ca_certs": str(self.certificate.file)}
        return connection
