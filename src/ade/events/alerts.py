"""Alerts: what needs an operator, as warnings of the health checks and as `alert` events when it begins."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from ade import VERSION
from ade.accounts.model import Token
from ade.accounts.tokens import list_tokens
from ade.errors import StaleWrite
from ade.events.model import ALERT, Event
from ade.stores.ports import Stores
from ade.stores.repository import Repository
from ade.tasks.model import Worker
from ade.tasks.reasons import moment
from ade.worker.views import WorkerView, of_other_versions, view_workers, without_worker

SOON_MS = 7 * 86_400_000  # an access token that expires earlier than this from now is an alert
ALERT_AFTER_MS = 60_000  # what ends earlier is not reported, such as a restart of a worker
_MOST_ALERTS = 100  # of each kind


class Alert(Struct, frozen=True, kw_only=True):
    """Something that needs attention: its kind, the name, worker, or token that it is about, and a sentence."""

    what: str
    about: str
    sentence: str
    advice: str | None = None

    @property
    def key(self) -> str:
        return f"{self.what}:{self.about}"


def alerts_of(
    workers: Sequence[WorkerView], unclaimed: Mapping[str, int], tokens: Sequence[Token], *, now: int
) -> list[Alert]:
    """Return the alerts: names that no live worker runs, workers of another version, and tokens about to expire."""
    names = sorted(unclaimed, key=lambda name: (-unclaimed[name], name))
    found = [_without_worker(name, unclaimed[name]) for name in names[:_MOST_ALERTS]]
    found += [_other_version(worker) for worker in of_other_versions(workers, VERSION)[:_MOST_ALERTS]]
    ending = sorted((token for token in tokens if expires_soon(token, now)), key=lambda token: token.expires_at)
    return found + [_ending(token) for token in ending[:_MOST_ALERTS]]


def _without_worker(name: str, count: int) -> Alert:
    waiting = f"{count} task{'s' * (count != 1)} named {name!r}"
    sentence = f"{waiting} {'wait' if count != 1 else 'waits'}, and no live worker runs this name in its queue"
    advice = "start a worker whose app has it, or cancel it with `ade cancel`"
    return Alert(what="no_worker", about=name, sentence=sentence, advice=advice)


def _other_version(worker: Worker) -> Alert:
    sentence = f"{worker.id} runs version {worker.version}, and this process runs {VERSION}"
    return Alert(what="worker_version", about=worker.id, sentence=sentence, advice="upgrade and restart the older one")


def _ending(token: Token) -> Alert:
    sentence = f"the access token {token.id} of {token.account} expires at {moment(token.expires_at)}"
    advice = "create another with `ade tokens create`, and revoke this one"
    return Alert(what="token_expires", about=token.id, sentence=sentence, advice=advice)


def expires_soon(token: Token, now: int) -> bool:
    """Whether a valid token is about to expire: in a week, or in the last quarter of a shorter life."""
    life = token.expires_at - token.created_at
    return token.is_good(now) and token.expires_at - now < min(SOON_MS, life // 4)


async def find_alerts(stores: Stores) -> list[Alert]:
    """Return the current alerts of a store."""
    workers = await view_workers(stores)
    unclaimed = without_worker(workers, await stores.queues.tallies())
    return alerts_of(workers, unclaimed, await list_tokens(stores), now=stores.clock.now())


class StandingAlert(Struct, frozen=True):
    """Since when an alert has been standing, and whether it was reported."""

    since: int
    is_reported: bool = False


class StandingAlerts(Struct, frozen=True):
    """The standing alerts by key."""

    alerts: dict[str, StandingAlert] = {}


_STANDING, _ALL = Repository("standing_alerts", StandingAlerts), "all"


async def report_alerts(stores: Stores) -> int:
    """Write an `alert` event for each alert that has lasted for a minute and was not reported since it began.

    A maintenance job. Its record is guarded, so that of several processes one reports. Returns how many it reported.
    """
    found, now = {alert.key: alert for alert in await find_alerts(stores)}, stores.clock.now()
    stored = await _STANDING.get(stores, _ALL)
    before = {} if stored is None else stored.record.alerts
    after = {key: before.get(key, StandingAlert(now)) for key in found}
    due = [key for key, each in after.items() if not each.is_reported and now - each.since >= ALERT_AFTER_MS]
    after |= {key: StandingAlert(after[key].since, is_reported=True) for key in due}
    if after == before:
        return 0
    put = _STANDING.put(_ALL, StandingAlerts(after), seen=0 if stored is None else stored.version)
    try:
        await stores.documents.write([structs.replace(put, is_quiet=True)], [_event(found[key], now) for key in due])
    except StaleWrite:  # another process was faster, and has reported them
        return 0
    return len(due)


def _event(alert: Alert, now: int) -> Event:
    return Event(type=ALERT, at=now, payload={"what": alert.what, "about": alert.about, "detail": alert.sentence})
