"""Approvals: guard rules, policies, review gates, votes, delegation, and rollback."""
