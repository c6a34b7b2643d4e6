"""The log on standard error: sentences for people, or one JSON object per record for machines.

The JSON has `time`, `level`, `logger`, then the fields of a request (`serving.observability.request_log.Entry`) or
`message`; `exception` and, where there is a trace, `trace_id` come last.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving.settings import Settings

FIELDS = "fields"  # attribute of a record, passed as `extra`: the fields that JSON has in place of the message
# Plain: Rich takes a millisecond per record, which would delay every request.
_SENTENCES = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")


class JsonLines(logging.Formatter):
    """One JSON object per record.

    Args:
        trace_id: Returns the id of the current trace, empty for none; None where there are no traces.
    """

    def __init__(self, trace_id: Callable[[], str] | None = None) -> None:
        super().__init__()
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **getattr(record, FIELDS, {"message": record.getMessage()}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if self._trace_id and (trace := self._trace_id()):
            line["trace_id"] = trace
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(settings: Settings, trace_id: Callable[[], str] | None = None) -> None:
    """Configure every logger of the process.

    Args:
        settings: Format and level of the log.
        trace_id: Argument of `JsonLines`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(trace_id) if settings.log_format == "json" else _SENTENCES)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
