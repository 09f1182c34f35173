"""Files, locks, processes and signals: what touches the operating system and knows nothing about training."""
