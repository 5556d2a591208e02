"""Programs that tests of the audit copy start as processes of their own."""
