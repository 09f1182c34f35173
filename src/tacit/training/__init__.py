"""A run in memory: its settings, the session that plays it round by round, how models are scored, and its results."""
