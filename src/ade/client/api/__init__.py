"""All calls of the client. Generated from the operations by `python -m docs.generate`."""

from ade.client.api.accounts import AccountsCalls
from ade.client.api.agents import AgentsCalls
from ade.client.api.approvals import ApprovalsCalls
from ade.client.api.dead_letters import DeadLettersCalls
from ade.client.api.inboxes import InboxesCalls
from ade.client.api.insight import InsightCalls
from ade.client.api.locks import LocksCalls
from ade.client.api.outside import OutsideCalls
from ade.client.api.policies import PoliciesCalls
from ade.client.api.queues import QueuesCalls
from ade.client.api.settings import SettingsCalls
from ade.client.api.tasks import TasksCalls
from ade.client.api.webhooks import WebhooksCalls
from ade.client.api.work import WorkCalls
from ade.client.api.workers import WorkersCalls


class Api(
    TasksCalls,
    DeadLettersCalls,
    WorkCalls,
    ApprovalsCalls,
    PoliciesCalls,
    LocksCalls,
    AgentsCalls,
    WorkersCalls,
    QueuesCalls,
    InboxesCalls,
    WebhooksCalls,
    SettingsCalls,
    AccountsCalls,
    InsightCalls,
    OutsideCalls,
):
    """Everything that can be asked."""
