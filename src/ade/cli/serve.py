"""`ade serve`: the HTTP interface by itself, for workers and people elsewhere."""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.core.urls import without_password

if TYPE_CHECKING:  # `--help` comes without them
    from ade.app.ade import Ade
    from ade.app.opening import Opened
    from ade.app.serving import Served
    from ade.settings import HttpSettings


def http_options(function: Any) -> Any:
    """Options that say where the HTTP interface listens; each stands for the setting of its name."""
    for option in (
        click.option("--port", type=int, help="The port to listen on; 0 is any that is free. 8411 is usual."),
        click.option("--host", help="The address to listen on; 127.0.0.1 is reached from this machine alone."),
    ):
        function = option(function)
    return function


def keep_http_options(session: Session, given: dict[str, Any]) -> None:
    if session.choices.url or session.choices.profile:
        raise click.UsageError(
            "--url and --profile name a server to talk to; --host and --port say where this one listens."
        )
    session.flags.update({f"http.{name}": given.pop(name) for name in ("host", "port")})


@command("serve")
@http_options
@pass_session
def serve(session: Session, /, **given: Any) -> int:
    """Answer over HTTP until told to stop, and do the duties on a timer. Tasks are run by workers elsewhere.

    The interface is at /api/v1, its description at /api/v1/openapi.json. Everybody shows who he is, by a token (`ade
    tokens create`) or by signing in; the first start shows a link to sign in with, once.
    """
    from ade.cli.serving import serve_over_http

    keep_http_options(session, given)

    async def greet(_app: "Ade", _opened: "Opened", served: "Served") -> None:
        store = without_password(session.settings.store.url)
        if session.out.as_json:
            session.out.record({"serving": True, "store": store, **address_view(served)})
            return
        session.out.note(f"ADE answers. Records are in {store}.")
        tell_address(session, served)
        session.out.note("Ctrl-C ends it.")

    return serve_over_http(session, greet, has_tasks=False)


def address_view(served: "Served") -> dict[str, Any]:
    """For programs that have started it."""
    return {"url": served.url, **({} if served.login_url is None else {"login_url": served.login_url})}


def cautions(http: "HttpSettings") -> list[str]:
    """What whoever starts it should know about who else gets to it."""
    from ade.core.web.addresses import is_loopback

    found = []
    if http.auth == "off":
        found.append("  open       whoever reaches it is let in, as `local` (http.auth = off)")
    if not is_loopback(http.host):
        found.append("  plain      tokens and passwords can be read on their way here; put a proxy with TLS before it")
    return found


def tell_address(session: Session, served: "Served") -> None:
    out = session.out
    out.note(f"  HTTP       {served.url}/api/v1, described at {served.url}/api/v1/openapi.json")
    for line in cautions(session.settings.http):
        out.note(line)
    if served.login_url is not None:
        out.note(f"  sign in    {served.login_url}")
        out.note("             (as admin; the link works once, within ten minutes; `ade users login-link admin`")
        out.note("             makes another)")
