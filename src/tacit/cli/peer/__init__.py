"""`tacit peer`, one module per command."""
