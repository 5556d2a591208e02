"""The Redis client: connections, pools, topologies, and retries."""
