"""Commands about agents, agent runs, and conversation inboxes."""
