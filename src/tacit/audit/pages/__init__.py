"""The result of an audit as a page, and the texts that it shares with the terminal."""
