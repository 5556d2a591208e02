"""`ade explain`: why is it not running?"""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.ids import find_id
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import facts_view, view
from ade.core.advice import with_advice

if TYPE_CHECKING:
    from ade.insight.reasons import Reason


@command("explain")
@click.argument("task_id", metavar="ID")
@pass_session
def explain(session: Session, task_id: str) -> None:
    """Say why a task is not running, or what became of it. Reasons come in the order in which they must be lifted."""
    session.look(_explain(session, task_id))


async def _explain(session: Session, text: str) -> None:
    async with session.api() as api:
        explanation = await api.explain_task(await find_id(api, text))
    out = session.out
    if out.as_json:
        out.document({**view(explanation), "reasons": [_reason_view(reason) for reason in explanation.reasons]})
        return
    first, *others = explanation.reasons
    out.styled(with_advice(explanation.sentence, first.advice), bold=out.is_terminal)
    for reason in others:
        out.line(f"- and {with_advice(reason.sentence, reason.advice)}")


def _reason_view(reason: "Reason") -> dict[str, Any]:
    return {**view(reason), "facts": facts_view(reason.facts)}
