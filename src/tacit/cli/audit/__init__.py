"""`tacit audit`: one module for each attack."""
