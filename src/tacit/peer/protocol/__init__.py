"""How peers agree, link by link and round by round, on what was used. No sockets, no threads, no clock of its own."""
