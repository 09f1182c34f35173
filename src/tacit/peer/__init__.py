"""One agent beside its own data, talking to its neighbours alone: what a real site needs beyond a network."""
