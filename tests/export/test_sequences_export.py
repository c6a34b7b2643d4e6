"""Models of sequences: graphs compute what networks compute at any length, padding has no effect, Triton serves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
import torch
import tritonclient.grpc as triton_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from export import parity, probes, repository, triton_config
from export.graphs import to_onnx
from export.graphs.deployable import Deployable, example
from export.parity import ParityError
from export.repository import RepositoryError
from export.signature import Signature
from research.sequences.networks import ClassifierConfig, MatcherConfig, MemoriserConfig, build
from research.sequences.problems.listops import DESCRIPTION as LISTOPS
from research.sequences.problems.matching import DESCRIPTION as MATCHING
from schema.card import CheckpointCard
from schema.problem import PADDING, SequenceDescription, SizeLimits
from serving.local_triton.server import TritonServer
from serving.settings import Settings

Published: TypeAlias = "tuple[Path, dict[str, Any]]"

LENGTH = SizeLimits(minimum=1, maximum=96, declared=(24, 96))
WHOLE = LISTOPS.model_copy(update={"length": LENGTH})
PAIRS = MATCHING.model_copy(update={"length": LENGTH})
EACH = SequenceDescription(
    name="animals",
    title="Which animal?",
    task="name the kind of every word",
    vocabulary=(PADDING, "ant", "bee", "cat"),
    pattern="[a-z]+",
    labels=("insect", "mammal"),
    answer="token",
    length=LENGTH,
    distribution="none",
)
CLASSIFIER = ClassifierConfig(
    length=96, channels=16, heads=2, layers=2, feedforward=16, attention="kernel-oglu2", pooling="cls"
)
MATCHER = MatcherConfig(
    length=96, channels=16, heads=2, layers=1, feedforward=16, attention="kernel-oglu2", pooling="mean"
)
MEMORISER = MemoriserConfig(channels=8, hidden=16)
CARD = CheckpointCard(training={"preset": "tiny"}, accuracy=({"accuracy": 0.4, "majority": 0.2},))


class Leaky(nn.Module):
    """A mean over all tokens, padding among them."""

    def __init__(self, problem: SequenceDescription) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(problem.vocabulary), len(problem.labels))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embedding(tokens).mean(dim=1)


def untrained(problem: SequenceDescription, make: Callable[[SequenceDescription], nn.Module]) -> Any:
    """Return what export reads of a checkpoint."""
    torch.manual_seed(0)
    recipe = SimpleNamespace(precision="float32")
    facts = {"problem": problem, "description": problem, "recipe": recipe, "formats": ("onnx",), "examples": None}
    network = make(problem).eval()
    return SimpleNamespace(operator=network, deployed=network, refined=None, digest="0" * 64, card=CARD, **facts)


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Return a repository with a model of either kind of output, and their checkpoints by name."""
    folder = tmp_path_factory.mktemp("sequences") / "model_repository"
    networks = {"listops": (WHOLE, CLASSIFIER), "animals": (EACH, MEMORISER), "matching": (PAIRS, MATCHER)}
    checkpoints = {name: untrained(problem, partial(build, sizes)) for name, (problem, sizes) in networks.items()}
    for name, checkpoint in checkpoints.items():
        repository.release(checkpoint, folder, name)
    return folder, checkpoints


@pytest.mark.parametrize("name", ["listops", "animals", "matching"])
def test_a_graph_computes_what_its_network_computes_at_any_length(name: str, sequences: Published) -> None:
    run, _ = to_onnx.read(sequences[0] / name / "1" / to_onnx.FILE)
    checkpoint = sequences[1][name]
    signature = Signature.of(checkpoint.problem)

    @given(batch=st.integers(1, 5), length=st.integers(1, 96), added=st.integers(0, 9), seed=st.integers(0, 2**32 - 1))
    @settings(max_examples=10, deadline=None)
    def check(batch: int, length: int, added: int, seed: int) -> None:
        tokens = probes.draw((batch, length), signature, seed)
        with torch.inference_mode():
            wanted = checkpoint.operator(*map(torch.from_numpy, tokens)).numpy()
        [output] = run(*tokens)
        assert output.dtype == np.float32
        assert output.shape == wanted.shape
        assert parity.difference(output, wanted).relative_l2 <= parity.TOLERANCE
        assert parity.padded(run, tokens, min(added, 96 - length)).difference.relative_l2 <= parity.TOLERANCE

    check()


def test_sentences_are_ragged_and_hold_words_of_the_vocabulary() -> None:
    tokens = probes.sentences((64, 31), words=4)
    lengths = (tokens != 0).sum(axis=1)
    assert tokens.dtype == np.int32
    assert lengths[0] == 31
    assert lengths.min() >= 1
    assert len(set(lengths)) > 10
    assert set(np.unique(tokens)) == {0, 1, 2, 3}
    assert all((row[:n] > 0).all() for row, n in zip(tokens, lengths, strict=True))


def test_no_comparison_uses_the_traced_shape() -> None:
    signature = Signature.of(LISTOPS)
    shapes = probes.shapes(signature)
    assert tuple(example(signature)[0].shape) not in shapes
    assert {shape[0] for shape in shapes} == {1, 2, 3}
    assert {1, 251, *LISTOPS.length.declared} <= {shape[1] for shape in shapes}


def test_card_certificate_and_config_tell_what_a_client_needs(sequences: Published) -> None:
    for name, axes, dims in (
        ("listops", ["batch", "label"], [10]),
        ("animals", ["batch", "token", "label"], [-1, 2]),
        ("matching", ["batch", "label"], [2]),
    ):
        problem, folder = sequences[1][name].problem, sequences[0] / name
        card, certificate = (json.loads((folder / "1" / f"{it}.json").read_text()) for it in ("card", "certificate"))
        config = triton_config.parse((folder / "config.pbtxt").read_text())
        vocabulary = {
            "words": list(problem.vocabulary),
            "padding": 0,
            "pattern": problem.pattern,
            "labels": list(problem.labels),
            "answer": problem.answer,
        }
        assert (card["vocabulary"], card["task"]) == (vocabulary, problem.task)
        assert card["accuracy"] == [*CARD.accuracy]
        assert "equation" not in card
        assert [each["name"] for each in card["inputs"]] == list(problem.inputs)
        assert all((each["dtype"], each["axes"]) == ("INT32", ["batch", "token"]) for each in card["inputs"])
        assert card["outputs"][0]["axes"] == axes
        assert (card["grid"]["axes"], card["grid"]["maximum"]) == (["token"], 96)
        assert (config.input[0].data_type, list(config.input[0].dims)) == (triton_config.pb.TYPE_INT32, [-1])
        assert list(config.output[0].dims) == dims
        assert json.loads(config.parameters["vocabulary"].string_value) == vocabulary
        assert max(row["difference"]["relative_l2"] for row in certificate["padding"]) <= parity.TOLERANCE
        assert all(row["added"] > 0 for row in certificate["padding"])


def test_a_network_that_sees_padding_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="tokens of padding behind it to change the output by at most 1e-05"):
        repository.release(untrained(WHOLE, Leaky), tmp_path / "model_repository", "leaky")
    assert list((tmp_path / "model_repository").iterdir()) == []


def test_a_name_keeps_its_vocabulary(sequences: Published) -> None:
    other = WHOLE.model_copy(update={"labels": tuple("abcdefghij")})
    with pytest.raises(RepositoryError, match="'listops' is published with another vocabulary"):
        repository.release(untrained(other, Leaky), sequences[0], "listops")


def test_the_graph_takes_int32(sequences: Published) -> None:
    graph = onnx.load(sequences[0] / "animals" / "1" / to_onnx.FILE).graph
    assert graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT32


def test_float64_is_no_type_of_a_token() -> None:
    operator = Deployable(Leaky(EACH), ("tokens",), torch.float64)
    assert operator(*example(Signature.of(EACH))).dtype == torch.float64


@pytest.fixture(scope="module")
def client(
    sequences: Published,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> Iterator[triton_grpc.InferenceServerClient]:
    chosen = make_settings(sequences[0])
    with (
        run_triton(chosen),
        triton_grpc.InferenceServerClient(f"127.0.0.1:{chosen.triton_grpc_port}") as opened,
    ):
        yield opened


@pytest.mark.deep  # the documentation's examples have both released kinds in Triton
@pytest.mark.timeout(240)  # a start of Triton, on a busy machine
def test_triton_serves_either_output(client: triton_grpc.InferenceServerClient, sequences: Published) -> None:
    for name, checkpoint in sequences[1].items():
        for shape in ((3, 41), (1, 96), (5, 1)):
            signature = Signature.of(checkpoint.problem)
            tokens = probes.draw(shape, signature)
            tensors = [
                triton_grpc.InferInput(argument, shape, "INT32").set_data_from_numpy(each)
                for argument, each in zip(signature.argument_names, tokens, strict=True)
            ]
            output = client.infer(name, tensors).as_numpy("logits")
            with torch.inference_mode():
                wanted = checkpoint.operator(*map(torch.from_numpy, tokens)).numpy()
            assert parity.difference(output, wanted).relative_l2 <= parity.TOLERANCE
