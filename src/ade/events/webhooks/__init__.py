"""How messages of webhooks leave the house."""
