"""Who must approve what, and whether they have: pure rules, from what was read to what it means."""
