"""The served model as an inversion calls it, whose version may go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from physics import registry
from schema.card import Card
from serving.inversion.jobs import Job, ServedModel, State
from serving.limits import ANYONE
from serving.service import Service
from serving.settings import Settings
from serving.triton import Triton
from tests import toy_flow
from tests.refusals import refused
from tests.serving.triton.test_http_client import always, serving


async def test_an_inversion_whose_version_has_been_replaced_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Triton has unloaded the version, and another one is served."""
    monkeypatch.setattr("serving.inversion.jobs.SUCCESSION_SECONDS", 0.0)
    sensing = registry.problem("darcy").sensing
    assert sensing is not None
    card = Card.model_validate(toy_flow.card())
    later = card.model_copy(update={"version": 2})
    job = Job(card, sensing.unknown, "", 1, ("", ""))
    async with serving(always(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")) as (_, client):
        triton = Triton(client.address, 2**20)
        async with triton:
            service = Service(Settings(repository=tmp_path), triton, "0")
            catalogue = service.catalogue
            catalogue._adopt({card.model: {2: later}})
            catalogue._entries[card.model].served, catalogue.responds = {2: later}, True
            model = ServedModel(service.predictor, {None: card}, sensing, job, ANYONE, np.ones((5, 5)))
            running = asyncio.get_running_loop().run_in_executor(None, lambda: model.solution)
            try:
                with refused("unknown-version", match='"flow" has no version 1 loaded; there are 2'):
                    async with asyncio.timeout(30):
                        await asyncio.shield(running)
            finally:
                job.end(State.CANCELLED)
