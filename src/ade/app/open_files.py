"""How many files and connections this process may have open."""

from contextlib import suppress

ENOUGH = 65_536  # for all streams and requests of a server; some programs grow slow where there is no limit at all


def allow_many_files() -> None:
    """As many as the machine lets us, up to what is enough. Where that is not allowed, all stays as it is."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
