"""One log entry per request, over HTTP and over gRPC.

For people it is a sentence, `POST /v1/models/darcy/predict 200 12.3 ms id=…`; for machines the fields of an `Entry`. It
holds no payload, no query and no secret.
"""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass

from serving.observability.log import FIELDS

logger = logging.getLogger("petrov.access")
ID_HEADER = "X-Request-Id"
_SAFE_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def request_id(proposed: str) -> str:
    """Return the id of a request: the client's own if its characters are safe in a log, else a new one."""
    return proposed if _SAFE_ID.fullmatch(proposed) else uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The fields that are logged of a request once it has ended.

    Attributes:
        request_id: Id that went back to the client.
        method: Method of HTTP, or `GRPC`.
        route: Template of the path, or name of the gRPC method.
        model: Name of the model, `unknown` if the repository has none of that name.
        version: Version of the model, empty before one was found.
        status: Status of HTTP, or name of gRPC's status.
        seconds: Time from the request line to the end of the response.
        bytes_in: Bytes of the body, as far as it was read.
        bytes_out: Bytes of the response.
        client: Address of the client.
        key: Name of its API key, empty without one.
    """

    request_id: str
    method: str
    route: str
    model: str
    version: str
    status: str
    seconds: float
    bytes_in: int
    bytes_out: int
    client: str
    key: str

    def write(self, path: str) -> None:
        """Write the entry; the sentence for people has the path itself in place of its template."""
        if logger.isEnabledFor(logging.INFO):
            values = (self.method, path, self.status, self.seconds * 1e3, self.request_id)
            logger.info("%s %s %s %.1f ms id=%s", *values, extra={FIELDS: vars(self)})
