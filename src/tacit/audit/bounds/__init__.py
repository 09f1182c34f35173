"""From what an attack observed to a lower bound on ε. Nothing here runs an attack."""
