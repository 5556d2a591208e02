"""ADE: a durable work queue for AI agents."""
