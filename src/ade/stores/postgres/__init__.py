"""The audit copy on PostgreSQL. The driver comes with the extra `community-ade[postgres]` and is loaded on first use."""
