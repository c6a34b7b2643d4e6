"""What the models are computed on, as the log, `/v1/models`, `/metrics` and the playground say it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serving.document import Document


class Device(Document):
    """What the local Triton computes on."""

    kind: Literal["gpu", "cpu"]
    name: str = Field(default="", description="Name of the card; empty for the processor.")
    count: int = Field(default=0, description="How many cards there are.")
    memory_bytes: int = Field(default=0, description="Memory of the first card.")
    reason: str = Field(default="", description="Why it is this one, in one line.")

    def __str__(self) -> str:
        if self.kind == "cpu":
            return "the processor"
        cards = f"{self.count} x {self.name}" if self.count > 1 else self.name
        return f"{cards}, {self.memory_bytes / 2**30:.1f} GiB"
