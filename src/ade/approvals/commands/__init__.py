"""Commands about drafts, approvals, and policies."""
