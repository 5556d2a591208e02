"""All calls of the client. Generated from the operations by `python -m docs.generate`."""

from ade.client.api.accounts import AccountsCalls
from ade.client.api.agents import AgentsCalls
from ade.client.api.approvals import ApprovalsCalls
from ade.client.api.locks import LocksCalls
from ade.client.api.system import SystemCalls
from ade.client.api.tasks import TasksCalls
from ade.client.api.webhooks import WebhooksCalls
from ade.client.api.workers import WorkersCalls


class Api(
    TasksCalls,
    WorkersCalls,
    ApprovalsCalls,
    LocksCalls,
    AgentsCalls,
    WebhooksCalls,
    AccountsCalls,
    SystemCalls,
):
    """Everything that can be asked."""
