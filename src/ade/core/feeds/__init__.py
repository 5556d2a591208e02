"""The live event feed, as far as it is pure: filters, what is kept in memory, gaps, and the text of an event stream."""
