"""`ade explain`: why is it not running?"""

import click

from ade.cli.ids import find_id
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.insight import explain as insight


@command("explain")
@click.argument("task_id", metavar="ID")
@pass_session
def explain(session: Session, task_id: str) -> None:
    """Say why a task is not running, or what became of it. Reasons come in the order in which they must be lifted."""
    session.look(_explain(session, task_id))


async def _explain(session: Session, text: str) -> None:
    async with session.stores() as stores:
        explanation = await insight.explain(stores, await find_id(stores, text))
    out = session.out
    if out.as_json:
        out.document(explanation)
        return
    out.styled(explanation.sentence, bold=out.is_terminal)
    for reason in explanation.reasons[1:]:
        out.line(f"- and {reason.sentence}")
