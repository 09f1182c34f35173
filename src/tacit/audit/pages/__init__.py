"""The result of an audit as a page, and the words that a terminal shares with it."""
