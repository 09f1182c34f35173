"""Logs as lines of JSON: time, level, message, and which neighbour or round it is about. No record, loss or gradient is ever passed here."""

import json
import logging
import sys
from datetime import UTC, datetime

_ABOUT = ("neighbor", "round")


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON. Of an exception only its type is written: its text may quote a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=False)


def log_json_lines(level: int = logging.INFO) -> None:
    """Send all logs of Tacit to stderr, as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger("tacit")
    root.handlers, root.propagate = [handler], False
    root.setLevel(level)
