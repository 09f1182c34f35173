"""What rank 0 tells the other ranks to do."""

from enum import IntEnum


class Command(IntEnum):
    """A step that all ranks take together."""

    ADVANCE = 1
    """Play one round."""
    SAVE = 2
    """Write the state beside the one before it."""
    COMMIT = 3
    """Drop the state before: all ranks have saved theirs."""
    SNAPSHOT = 4
    """Score the models."""
    COLLECT = 5
    """Send the models to rank 0."""
    FINISH = 6
    """End: the run is finished."""
    STOP = 7
    """End: the run is stopped, and may be resumed."""
