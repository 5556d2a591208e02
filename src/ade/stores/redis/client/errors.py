"""Classification of server errors: which are transient, and which ADE error the others become."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from ade.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable, StoreUnsupported
from ade.stores.redis.keys import ANY, KEYS, KeyNames

Command = tuple[Any, ...]


class ServerError(Exception):
    """The server's answer is an error. It begins with a word that says which."""

    @property
    def code(self) -> str:
        word = str(self).partition(" ")[0]
        return word if word.isupper() else ""


# Every failure of an exchange with a server.
FAILURES = (ServerError, OSError, TimeoutError, EOFError)

# Transient errors: the server cannot serve the call now, or no longer holds the data.
_PASSING = {
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MAXCLIENTS",
    "MOVED",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
}
# Error texts without a code of their own -> code, in the order of the search.
_WORDLESS = {
    "ACL failure in script": "NOPERM",
    "max number of clients": "MAXCLIENTS",
    "cluster support disabled": "NOCLUSTER",
    "unknown command 'CLUSTER'": "NOCLUSTER",  # the error of a sentinel
    "unknown command 'SENTINEL'": "NOSENTINEL",
    "AUTH": "NOAUTH",  # a password for a server without one
}
_LOGIN = {"NOAUTH", "WRONGPASS", "DENIED"}
_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "OOM": (
        StoreFull,
        "the memory of {where} is full, so no new work is taken; running tasks may finish. Raise its maxmemory or let"
        " finished tasks be pruned",
    ),
    "NOAUTH": (
        StoreUnsupported,
        "{where} does not let us in ({text}). Give the right user and password in the store URL, as in"
        " redis://user:password@host",
    ),
    "NOCLUSTER": (
        StoreUnsupported,
        "{where} is not a node of a cluster. Write redis:// in the store URL for one server, or redis+sentinel:// for"
        " sentinels",
    ),
    "NOSENTINEL": (
        StoreUnsupported,
        "{where} is not a sentinel. Name the sentinels in the store URL, or write redis:// for one server and"
        " redis+cluster:// for a cluster",
    ),
    "NOPERM": (
        StoreUnsupported,
        "{where} does not allow the user of the store URL to do this ({text}). Let it use all keys and channels of the"
        " prefix, scripts, streams and PUBLISH",
    ),
    "WRONGTYPE": (
        StoreCorrupt,
        "a key of the store on {where} has the wrong type ({text}). Another program wrote to it: keep others away from"
        " the prefix and remove that key, and what belongs there is put back from the records",
    ),
    "MISCONF": (StoreUnavailable, "{where} takes no writes because it cannot save them ({text}). Mend its disk"),
    "READONLY": (
        StoreUnavailable,
        "{where} is a replica, and no primary took over in time. Name the primary in the URL, or mend the failover",
    ),
    "UNTRUSTED": (
        StoreUnsupported,
        "the certificate of {where} is not trusted ({text}). Name its authority with ?ca=file.pem in the store URL",
    ),
}
_TLS_MARKS = ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed")


def code_of(error: BaseException) -> str:
    """Return the code of a server error; empty for other errors."""
    if not isinstance(error, ServerError):
        return ""
    if error.code != "ERR":
        return error.code
    return next((code for words, code in _WORDLESS.items() if words in str(error)), "ERR")


def passes(error: BaseException) -> bool:
    """Return whether an error is transient: a retry, perhaps on another server, can succeed."""
    if _is_untrusted(error):
        return False
    code = code_of(error)
    if code in _LOGIN or code == "NOPERM":
        return False
    return code in _PASSING or not isinstance(error, ServerError)


def reason(error: BaseException) -> str:
    """Return the error message as one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    code, text = code_of(error), " ".join(str(error).split())
    return text if not code or text.startswith(code) else f"{code} {text}"


def translated(error: BaseException, where: object) -> StoreError:
    """Return the ADE error for a permanent error, or for a transient one that lasted too long."""
    code = code_of(error)
    if _is_untrusted(error):
        code = "UNTRUSTED"
    elif code in _LOGIN:
        code = "NOAUTH"
    if code in _MEANINGS:
        kind, sentence = _MEANINGS[code]
    elif passes(error):
        kind, sentence = (
            StoreUnavailable,
            "{where} could not be reached or written ({text}). Nothing is known to be lost",
        )
    else:
        kind, sentence = StoreError, "{where} refused: {text}"
    return kind(sentence.format(where=where, text=reason(error)))


def _is_untrusted(error: BaseException) -> bool:
    """Whether the certificate is not trusted, which a retry does not change."""
    return isinstance(error, ssl.SSLCertVerificationError) or any(mark in str(error) for mark in _TLS_MARKS)


# Search for keys of a wrong type: WRONGTYPE does not name the key.


SendCommand = Callable[[list[Command]], Awaitable[list[Any]]]  # the responses include server errors


async def wrong_type_keys(ask: SendCommand, names: KeyNames) -> list[str]:
    """Return sentences about keys of a wrong type, among keys that are shared by several tasks."""
    expected = {_key(family.pattern, names): family.type for family in KEYS if "<" not in family.pattern}
    expected |= await _by_queue(ask, names) | await _books(ask, names)
    found = await ask([("TYPE", key) for key in expected])
    return [
        f"{key} is a {kind.decode()} and should be a {wanted}"
        for (key, wanted), kind in zip(expected.items(), found, strict=True)
        if isinstance(kind, bytes) and kind.decode() not in (wanted, "none") and wanted != ANY
    ]


def _key(pattern: str, names: KeyNames) -> str:
    return {"queue:results": names.results, "queue:dlq": names.dlq}.get(pattern, names.prefix + pattern)


async def _by_queue(ask: SendCommand, names: KeyNames) -> dict[str, str]:
    """Streams and lanes of the queues in the counters, as far as those can be read."""
    sets = [("SMEMBERS", f"{names.prefix}{lanes}") for lanes in ("queue:lines", "queue:asking")]
    counted, *found = await ask([("HKEYS", f"{names.prefix}tally"), *sets])
    queues = set() if isinstance(counted, ServerError) else {each.decode().partition(":")[0] for each in counted}
    streams = {f"{names.tasks}:{queue}:{priority}": "stream" for queue in sorted(queues) for priority in range(10)}
    lines = [lane.decode() for lanes in found if not isinstance(lanes, ServerError) for lane in lanes]
    return streams | {f"{names.prefix}queue:line:{lane}": "zset" for lane in lines}


async def _books(ask: SendCommand, names: KeyNames) -> dict[str, str]:
    """Lock tables of all known namespaces."""
    [marked] = await ask([("HKEYS", f"{names.prefix}lock:marks")])
    namespaces = [] if isinstance(marked, ServerError) else [each.decode() for each in marked]
    return {f"{names.prefix}lock:request:{namespace}": "hash" for namespace in namespaces}
