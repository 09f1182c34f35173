"""Files, locks, processes and signals: everything that uses the operating system and knows nothing about training."""
