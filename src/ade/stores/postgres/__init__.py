"""The audit copy on PostgreSQL. The driver comes with the extra `community-ade[postgres]`, loaded on first use."""
