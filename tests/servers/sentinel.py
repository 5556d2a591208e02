"""A primary, its replica and three sentinels that promote the replica when the primary is gone."""

from typing import Any, Self

import redis

from tests.servers.binaries import Binary
from tests.servers.blocks import Startable
from tests.servers.ports import HOST
from tests.servers.process import ServerProcess
from tests.servers.server import HARNESS, PLAIN, Options, Server
from tests.servers.waiting import until

SERVICE = "mymaster"
QUORUM = 2


class Sentinel(ServerProcess):
    """One sentinel, watching one primary."""

    def __init__(self, binary: Binary, primary: Server, down_after_ms: int) -> None:
        super().__init__(binary, ["--sentinel"])
        self._primary = primary
        self._down_after_ms = down_after_ms

    def _configuration(self) -> list[str]:
        lines = super()._configuration()
        lines += [
            f"port {self.port}",
            f"sentinel monitor {SERVICE} {HOST} {self._primary.port} {QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 4000",
            f"sentinel parallel-syncs {SERVICE} 1",
        ]
        if self._primary.options.closed:
            lines += [f"sentinel auth-user {SERVICE} {HARNESS}", f"sentinel auth-pass {SERVICE} {HARNESS}"]
        return lines

    def hurry(self, talkative: bool) -> None:
        """Look every tenth of a second instead of every few; when `talkative`, also tell the others as often.

        The more often they talk, the sooner they take a server back into line that calls itself a primary too: right
        for a primary that comes back, fatal to a replica that is just being promoted. How often they ping is left as
        it is: a shorter period also makes what they know of the replica go stale too soon to promote it.
        """
        periods = {"INFO-PERIOD": 100, "ASK-PERIOD": 100, "PUBLISH-PERIOD": 2000}
        if talkative:
            periods["PUBLISH-PERIOD"] = 100
        self.command("SENTINEL", "DEBUG", *(word for period in periods.items() for word in period))

    def primary_port(self) -> int:
        """Where it sends clients."""
        answer: list[Any] = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(answer[1])

    def knows_all(self, sentinels: int) -> bool:
        """Whether it has found the other sentinels and a replica that is fit to take over."""
        watched = _fields(self.command("SENTINEL", "MASTER", SERVICE))
        replicas = [_fields(each) for each in self.command("SENTINEL", "REPLICAS", SERVICE)]
        fit = [each for each in replicas if each["master-link-status"] == "ok" and "down" not in str(each["flags"])]
        return int(watched["num-other-sentinels"]) == sentinels - 1 and len(fit) == len(replicas) > 0


class Sentinels(Startable):
    """`with Sentinels(binary) as watched: ...`"""

    def __init__(
        self, binary: Binary, options: Options = PLAIN, *, down_after_ms: int = 700, kind: type[Server] = Server
    ) -> None:
        if options.tls:
            raise ValueError("sentinels with TLS are not offered here: the servers would not trust each other")
        self.binary = binary
        self.servers = [kind(binary, options), kind(binary, options)]
        self.sentinels = [Sentinel(binary, self.servers[0], down_after_ms) for _ in range(3)]

    @property
    def url(self) -> str:
        addresses = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{self.servers[0].login}{addresses}/{SERVICE}"

    @property
    def alive(self) -> bool:
        return all(process.alive for process in (*self.sentinels, *self.servers))

    def start(self) -> Self:
        """Up when this returns, the replica in step and known to all sentinels."""
        primary, replica = self.servers
        primary.launch()
        replica.launch()
        primary.wait_ready()
        replica.wait_ready().replicate(primary)
        for sentinel in self.sentinels:
            sentinel.launch()
        for sentinel in self.sentinels:
            sentinel.wait_ready()
        self._settle()
        return self

    def wait_ok(self) -> None:
        """Wait until a failover would work."""
        running = self._running()
        until(lambda: all(each.knows_all(len(running)) for each in running), "sentinels to know all")

    def primary(self) -> Server:
        """Whom the sentinels name, once they agree."""
        port = until(self._agreed_port, "sentinels to agree on the primary")
        return next(server for server in self.servers if server.port == port)

    def replica(self) -> Server:
        primary = self.primary()
        return next(server for server in self.servers if server is not primary)

    def flush(self) -> None:
        self.primary().flush()

    def kill_primary(self) -> Server:
        """Kill the primary; it is returned."""
        victim = self.primary()
        victim.kill()
        return victim

    def wait_promoted(self, instead_of: Server) -> Server:
        """Wait until all sentinels name another primary and it accepts writes; it is returned."""
        until(lambda: self._agreed_port() not in (None, instead_of.port), "sentinels to name another primary")
        promoted = self.primary()
        until(lambda: promoted.info("replication")["role"] == "master", f"{promoted} to be a primary")
        return promoted

    def failover(self) -> Server:
        """Swap the two without a crash; the new primary is returned."""
        primary = self.primary()
        until(self._ordered, "a sentinel to begin a failover")
        return self.wait_promoted(instead_of=primary)

    def restart(self, server: Server) -> None:
        """Bring a killed server back and wait until it follows the primary."""
        server.restart()
        self._settle()

    def close(self) -> None:
        for process in (*self.sentinels, *self.servers):
            process.close()

    def _settle(self) -> None:
        """Wait until the replica follows the primary and all know each other."""
        for sentinel in self._running():
            sentinel.hurry(talkative=True)
        until(self._followed, "the replica to follow the primary")
        self.wait_ok()
        for sentinel in self._running():
            sentinel.hurry(talkative=False)

    def _running(self) -> list[Sentinel]:
        return [sentinel for sentinel in self.sentinels if sentinel.alive]

    def _followed(self) -> bool:
        roles = [server.info("replication") for server in self.servers]
        return sorted(role.get("master_link_status", "none") for role in roles) == ["none", "up"]

    def _agreed_port(self) -> int | None:
        ports = {sentinel.primary_port() for sentinel in self._running()}
        return ports.pop() if len(ports) == 1 else None

    def _ordered(self) -> bool:
        """Whether the order was taken: right after another failover it may be refused."""
        try:
            return bool(self._running()[0].command("SENTINEL", "FAILOVER", SERVICE))
        except redis.ResponseError:
            return False


def _fields(answer: Any) -> dict[str, Any]:
    """A sentinel's answer as a mapping, whichever form the client has given it."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
