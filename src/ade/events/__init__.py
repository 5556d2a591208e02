"""Events: the log, live feeds, metrics, and the audit copy."""
