"""What a model repository holds.

A version folder has a card, a certificate and stored examples.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from pydantic_core import from_json
from tritonclient.grpc import model_config_pb2

from schema.card import Card
from schema.parts import validated
from serving import system
from serving.triton import unsuffixed

Stamp = frozenset[tuple[str, int, int]]

logger = logging.getLogger(__name__)
QUEUE_DELAY_MICROSECONDS = 1000  # a tenth of a run
MAX_BYTES = 16 * 2**20  # of a card or a certificate; ours have some ten kilobytes
CERTIFICATE = "certificate.json"


class IncompleteConfigError(Exception):
    """A `config.pbtxt` lacks tensors of a card. It may be complete in a moment, and Triton would take it as it is."""


class Repository:
    """A model repository on disk.

    A card and its certificate are read again when their files change, as they do while a copy writes them one after the
    other, or over those of the same number; a card that cannot be read then leaves the one before. Of each model,
    `newest` is the highest version number, whether its card can be read or not, and `stamps` has name, time and size of
    the files of its versions, by which a change is noticed; `settled` are the models whose files are those of the read
    before. `certificates` are those of the cards, None where a version has none. What cannot be read is logged if it
    `warns`.
    """

    def __init__(self, folder: Path, *, warns: bool = True) -> None:
        self._folder, self._warns = folder, warns
        self._cards: dict[str, dict[int, Card]] = {}
        self._documents: dict[Path, Stamp] = {}  # by card: the files that it was read from
        self.certificates: dict[tuple[str, int], dict[str, Any] | None] = {}
        self._faults: dict[Path, str] = {}
        self.newest: dict[str, int] = {}
        self.stamps: dict[str, Stamp] = {}
        self.settled: set[str] = set()

    def read(self) -> dict[str, dict[int, Card]]:
        """Return the cards of every model, by version.

        A model whose card cannot be read is kept without that version, so that readiness reports it as missing. A
        folder without any card is not a model of ours.
        """
        try:
            models = sorted(self._folder.iterdir())
        except OSError as error:
            self._warn(self._folder, str(error))
            return self._cards  # a volume that is away for a moment, say; what has been loaded stays
        self._faults.pop(self._folder, None)
        found: dict[str, dict[int, Card]] = {}
        newest: dict[str, int] = {}
        stamps: dict[str, Stamp] = {}
        for model in models:
            name = model.name
            try:
                paths = sorted(file for each in model.iterdir() if (file := each / "card.json").exists())
                stamps[name] = _stamp(model)
            except (FileNotFoundError, NotADirectoryError):  # it has just gone, or is a file
                continue
            except OSError as error:  # it cannot be listed now, and stays as it was
                self._warn(model, str(error))
                paths = [model / str(number) / "card.json" for number in self._cards.get(name, ())]
                stamps[name] = self.stamps.get(name, frozenset())
            for path in paths:
                number = _number(path.parent.name)
                if not (name.isascii() and name.isprintable()):  # which no header can hold, nor a metric some others
                    self._warn(path, f"expected a name of printable ASCII but found {name!r}")
                elif number is not None:
                    documents = {str(path), str(path.with_name(CERTIFICATE))}
                    stamp = frozenset(each for each in stamps[name] if each[0] in documents)
                    card = self._cards.get(name, {}).get(number)
                    if card is None or stamp != self._documents.get(path):
                        card = self._card(path, stamp) or card
                    found.setdefault(name, {}).update({} if card is None else {number: card})
                    newest[name] = max(number, newest.get(name, number))
        self.settled = {name for name in found if stamps[name] == self.stamps.get(name)}
        self.stamps = {name: stamps[name] for name in found}
        self._cards, self.newest = found, newest
        return found

    def configuration(self, model: str, without: Collection[int], *, gpu: bool = False) -> str | None:
        """Return a model's configuration in JSON, for its newest versions without some; None if none is left.

        On a GPU it waits for more requests.

        Raises:
            IncompleteConfigError: `config.pbtxt` lacks tensors, as an empty one does that is just being written.
            OSError, ValueError, ParseError: It cannot be read here.
        """
        text = system.read_file(self._folder / model / "config.pbtxt", MAX_BYTES).decode()
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        numbers = sorted(filter(None, map(_number, (each.name for each in (self._folder / model).iterdir()))))
        policy = config.version_policy
        if policy.HasField("specific"):
            numbers = [each for each in numbers if each in policy.specific.versions]
        kept = [each for each in numbers if each not in without]
        if not policy.HasField("specific") and not policy.HasField("all"):
            kept = kept[-max(1, policy.latest.num_versions) :]
        cards = self._cards.get(model, {})
        described = {unsuffixed(tensor.name) for tensor in (*config.input, *config.output)}
        for card in (cards[each] for each in kept if each in cards):
            results = (*(tensor.name for tensor in card.outputs), *card.quality)
            if missing := sorted({*card.names, *results} - described):
                found = f'config.pbtxt has no tensor "{missing[0]}"'
                raise IncompleteConfigError(f"{found}, which the card of version {card.version} names")
        policy.Clear()
        policy.specific.versions.extend(kept)
        if gpu:
            wait_for_more(config)
        return json_format.MessageToJson(config, preserving_proto_field_name=True) if kept else None

    def uncertified(self, model: str) -> dict[int, str]:
        """Return the versions whose graph is not the one of their certificate, each with the name of that file.

        So it is while one version is copied over another, and after a damage. What has no certificate may be any graph.
        """
        found = {}
        for number in self._cards.get(model, {}):
            match self.certificates.get((model, number)):
                case {"artefact": {"file": str(name), "sha256": str(expected)}} if Path(name).name == name:
                    graph = self._folder / model / str(number) / name
                    with suppress(OSError, ValueError), system.opened(graph) as file:  # else Triton says what is wrong
                        if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                            found[number] = name
        return found

    def _card(self, path: Path, stamp: Stamp) -> Card | None:
        """Read the card of a version folder, and its certificate; a fault is logged once, and again when it changes."""
        model, number = path.parent.parent.name, path.parent.name
        try:
            card = validated(Card, _document(path), path.name)
            if (card.model, str(card.version)) != (model, number):
                found = f"{card.model} version {card.version}"
                raise ValueError(f"expected the card of {model} version {number} but found that of {found}")  # noqa: TRY301
            certificate = path.with_name(CERTIFICATE)
            self.certificates[model, card.version] = _document(certificate) if certificate.exists() else None
            self._documents[path] = stamp
            return card  # noqa: TRY300
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            self._warn(path, str(error))
            return None

    def _warn(self, path: Path, fault: str) -> None:
        if self._warns and self._faults.get(path) != fault:
            logger.warning("%s cannot be read: %s", str(path).encode(errors="backslashreplace").decode(), fault)
            self._faults[path] = fault


def wait_for_more(config: Any) -> None:
    """Have a model on a GPU wait a moment for further requests, unless its config says how long.

    A run of one field takes nearly as long there as one of sixteen, and clients that have had their answers at one time
    send their next requests within a moment. A full batch waits for none; on a processor a wait gains nothing. Copies
    from and to pinned memory are Triton's default.
    """
    batching = config.dynamic_batching
    if config.max_batch_size > 1 and config.HasField("dynamic_batching") and not batching.max_queue_delay_microseconds:
        batching.max_queue_delay_microseconds = QUEUE_DELAY_MICROSECONDS
        if not batching.preferred_batch_size:
            batching.preferred_batch_size.append(config.max_batch_size)


def base(card: Card, models: Collection[str]) -> str:
    """Return the model that a companion belongs to, as `darcy_vjp` and `darcy_torchscript` to `darcy`; else nothing."""
    found = card.model.removesuffix(f"_{card.format}") if card.product is None else card.product.of
    return found if found != card.model and (card.product or found in models) else ""


def _number(name: str) -> int | None:
    number = int(name) if name.isascii() and name.isdecimal() else 0
    return number if str(number) == name else None


def _stamp(model: Path) -> Stamp:
    """Return the files that Triton reads, not those that are renamed once they are complete, as rsync's `.model.4f`."""
    found = set()
    files = (each for each in model.glob("*/*") if _number(each.parent.name) and not each.name.startswith("."))
    for path in (model / "config.pbtxt", *files):
        try:
            status = path.stat()
        except OSError:  # it has just gone
            continue
        found.add((str(path), status.st_mtime_ns, status.st_size))
    return frozenset(found)


def _document(path: Path) -> dict[str, Any]:
    """Return a JSON object that can be sent on as JSON: of finite numbers, at most 200 levels deep."""
    document = from_json(system.read_file(path, MAX_BYTES), allow_inf_nan=False)
    if not isinstance(document, dict):
        raise ValueError(f"{path.name}: expected a JSON object but found {type(document).__name__}")  # noqa: TRY004  the content is at fault
    return document
