"""What the servers' errors mean: which pass by themselves, and ours for those that do not."""

import ssl

from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError, RedisError, ResponseError

from ade.core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnsupported,
)

# Everything that talking to a server can end in.
FAILURES = (RedisError, OSError, TimeoutError, EOFError)

# Answers of a server that cannot serve the call now or is no longer the right one to ask.
_PASSING = {
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MOVED",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
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
    """The word a server's error begins with, empty if it is not a server's."""
    if not isinstance(error, RedisError):
        return ""
    known = getattr(error, "status_code", None)
    first = str(error).partition(" ")[0]
    return known or (first if first.isupper() else "")


def passes(error: BaseException) -> bool:
    """Whether trying again, perhaps elsewhere, can help."""
    if isinstance(error, AuthenticationError | AuthorizationError) or _is_untrusted(error):
        return False
    code = code_of(error)
    if code in _LOGIN or code == "NOPERM":
        return False
    return code in _PASSING or not _is_answer(error)


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    code, text = code_of(error), " ".join(str(error).split())
    return text if not code or text.startswith(code) else f"{code} {text}"


def translated(error: BaseException, where: object) -> StoreError:
    """Our error for one that does not pass by itself, or did not pass in time."""
    code = code_of(error)
    if _is_untrusted(error):
        code = "UNTRUSTED"
    elif isinstance(error, AuthenticationError | AuthorizationError) or code in _LOGIN:
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


def _is_answer(error: BaseException) -> bool:
    """Whether a server said this, rather than said nothing."""
    return isinstance(error, ResponseError | BusyLoadingError)


def _is_untrusted(error: BaseException) -> bool:
    """A certificate that is not trusted today is not trusted in a second either."""
    return isinstance(error, ssl.SSLCertVerificationError) or any(mark in str(error) for mark in _TLS_MARKS)
