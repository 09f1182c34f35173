"""The agreement of a consortium: one file that all members hold and sign. Nothing else is configured in common."""
