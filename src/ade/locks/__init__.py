"""Resource locks: records, rules, and clients."""
