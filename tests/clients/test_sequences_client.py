"""Sequence models in the client: texts to tokens, logits to labels, and the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petrov_client import (
    Choice,
    GridInfo,
    InvalidInput,
    InvalidResponse,
    ModelInfo,
    TensorInfo,
    Vocabulary,
    Where,
)
from petrov_client._commands import texts
from petrov_client._descriptions import model_info, vocabulary
from petrov_client._inputs import check_input
from tests import toy_sequences
from tests.clients.conftest import Done

WORDS = Vocabulary(("<pad>", "[MAX", "]", *"0123456789"), r"\[MAX|\]|[0-9]", ("low", "middle", "high"), "sequence")
BYTES = Vocabulary(tuple(map(str, range(257))), None, ("no", "yes"), "sequence")
TEXTS = ["ant bee bee", "cat", "  ant\tant "]
SINGLE = np.array([1, 2, 2])


def toy(known: Vocabulary | None = WORDS) -> ModelInfo:
    tokens = TensorInfo("tokens", ("batch", "token"), shape=(None, None), dtype="INT32")
    logits = TensorInfo("logits", ("batch", "label"))
    return ModelInfo(
        "toy", 1, (1,), (tokens,), (logits,), 4, grid=GridInfo(("token",), 2, 9, (4,), ""), vocabulary=known
    )


def test_a_text_is_cut_into_the_model_s_words() -> None:
    tokens = toy().encode("[MAX 2 90]")
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [1, 5, 12, 3, 2]


def test_several_texts_are_padded_behind() -> None:
    assert toy().encode(["7", "[MAX 1 ]", "0"]).tolist() == [[10, 0, 0], [1, 4, 2], [3, 0, 0]]
    assert toy().encode(["7"]).tolist() == [[10, 0]]  # the model takes two tokens at least


@given(st.text(min_size=1, max_size=2))
def test_bytes_are_tokens_where_no_pattern_cuts(text: str) -> None:
    assert toy(BYTES).encode(text)[: len(text.encode())].tolist() == [byte + 1 for byte in text.encode()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[MAX 2 (9 ]", r'"\(" at character 7 is not in the vocabulary, which begins with \[MAX \] 0 1'),
        ("[MIN 2 ]", r'"\[MIN" at character 0'),
        ("1 2 three", r'"three" at character 4'),
        ("", "expected 1 to 9 words but got 0"),
        ("1" * 10, "expected 1 to 9 words but got 10"),
    ],
)
def test_an_unknown_word_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as alone:
        toy().encode(text)
    assert alone.value.where == Where("tokens")
    with pytest.raises(InvalidInput, match=f"text 2: {message}") as among:
        toy().encode(["1", "2", text])
    assert among.value.where == Where("tokens", (2,))


def test_a_model_of_fields_takes_no_text() -> None:
    with pytest.raises(InvalidInput, match='"toy" takes numbers and no text'):
        toy(None).encode("1")
    with pytest.raises(InvalidInput, match='"toy" takes numbers and no text'):
        toy(None).decode(np.zeros(3))


def test_logits_become_labels_with_their_probabilities() -> None:
    logits = np.log(np.array([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4]], np.float32))
    first, second = toy().decode(logits)
    assert (first.label, first.runner_up, second.label, second.runner_up) == ("middle", "low", "low", "high")
    assert (first.probability, first.runner_up_probability) == pytest.approx((0.7, 0.2), abs=1e-6)
    assert isinstance(toy().decode(logits[0]), Choice)
    assert len(toy().decode(np.zeros((2, 5, 3)))[1]) == 5
    assert toy().decode(np.array([1e4, -1e4, 0])).probability == 1.0
    with pytest.raises(InvalidInput, match=r"expected logits with 3 labels as last axis but got \(4,\)"):
        toy().decode(np.zeros(4))


@pytest.mark.parametrize(
    ("array", "message", "index"),
    [
        (np.ones((2, 4)), 'expected integers but got float64 for "tokens"', None),
        (np.ones((2, 4), bool), "expected integers but got bool", None),
        ([[1, 2, 13]], r"tokens\[0,2\] is 13; the vocabulary has 13 words", (0, 2)),
        ([1, 2**40], rf"tokens\[1\] is {2**40}; the vocabulary has 13 words", (1,)),
        ([[1, 2], [-1, 2]], r"tokens\[1,0\] is -1", (1, 0)),
        ([[1, 0, 2]], r"tokens\[0,1\] is 0; that is padding and belongs behind the words", (0, 1)),
        ([[1, 1]] * 7 + [[0, 0]], r"tokens\[7,0\] is 0; that is padding", (7, 0)),
        (np.ones((2, 10), int), "expected 2 to 9 points along token but got 10", None),
    ],
)
def test_tokens_are_checked_before_anything_is_sent(array: Any, message: str, index: Any) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check_input(toy(), array)
    assert caught.value.where == Where("tokens", index)


@pytest.mark.parametrize("dtype", ["i1", "u2", ">i4", "i8"])
def test_integers_of_any_size_become_int32(dtype: str) -> None:
    checked = check_input(toy(), np.full((5, 3), 7, dtype))
    assert checked.inputs[0].fields(slice(0, 4)).dtype.str == "<i4"


def test_without_a_vocabulary_int32_is_the_limit() -> None:
    assert check_input(toy(None), [[-5, 2**31 - 1]]).inputs[0].fields(slice(0, 1)).tolist() == [[-5, 2**31 - 1]]
    with pytest.raises(InvalidInput, match=r"tokens\[0,1\] is 2147483648; expected a number that int32 holds"):
        check_input(toy(None), [[1, 2**31]])


@pytest.mark.parametrize("change", [{"pattern": "("}, {"labels": ["one"]}, {"words": None}, {"answer": ...}])
def test_a_vocabulary_of_nonsense_is_unreadable(change: dict[str, Any], description: Callable[..., Any]) -> None:
    document = json.loads(description()[2])
    plain = {"words": ["<pad>", "a"], "pattern": "a", "labels": ["x", "y"], "answer": "sequence"} | change
    document["card"]["vocabulary"] = {key: value for key, value in plain.items() if value is not ...}
    with pytest.raises(InvalidResponse, match="the description of a model is not readable"):
        model_info(document)


@pytest.mark.parametrize("model", toy_sequences.OUTPUTS)
def test_every_client_predicts_texts(call_triton: Any, model: str) -> None:
    info = call_triton("model", model)
    assert info.vocabulary == vocabulary(json.loads(json.dumps(toy_sequences._vocabulary(model))))
    assert (info.inputs[0].dtype, info.outputs[0].dtype) == ("INT32", "FP32")
    tokens = info.encode(TEXTS)
    output = call_triton("predict", model, tokens)
    np.testing.assert_array_equal(output, toy_sequences.compute(model, tokens))
    np.testing.assert_array_equal(call_triton("predict", model, SINGLE), toy_sequences.compute(model, SINGLE))
    many = np.random.default_rng(0).integers(1, 4, (11, 7))
    np.testing.assert_array_equal(call_triton("predict", model, many), toy_sequences.compute(model, many))
    with pytest.raises(InvalidInput, match="expected integers but got float32"):
        call_triton("predict", model, tokens.astype(np.float32))


def test_the_gateway_s_grpc_has_the_vocabulary_too(gateway: Any, grpc_client: Any) -> None:
    address = f"127.0.0.1:{gateway.settings.grpc_port}"
    info = grpc_client.call(address, "model", "tally")
    assert info.decode(grpc_client.call(address, "predict", "tally", info.encode("bee cat cat"))).label == "cat"


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_one_text_gives_one_sentence(petrov: Any, gateway: Any, scheme: str) -> None:
    url = gateway.url if scheme == "http" else f"grpc://127.0.0.1:{gateway.settings.grpc_port}"
    done = petrov("predict", "tally", "ant ant cat bee", PETROV_URL=url)
    assert done == Done(0, "ant with 57.6%, then bee with 21.2%\n", "")


def test_a_file_and_standard_input_are_tables(petrov: Any, gateway: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("ant ant\n\nbee " + "bee " * 30 + "\n")
    for source, stdin in ((tmp_path / "texts.txt", ""), ("-", (tmp_path / "texts.txt").read_text())):
        done = petrov("predict", "tally", source, stdin=stdin, PETROV_URL=gateway.url)
        assert done.returncode == 0
        assert [word in done.stdout for word in ("runner up", "ant ant", "bee bee", "…")] == [True] * 4


def test_a_byte_order_mark_is_no_part_of_the_first_text(tmp_path: Path) -> None:
    """Where tokens are bytes it would be three of them, and change the label."""
    (tmp_path / "texts.txt").write_text("ant\n\ufeffbee\n", encoding="utf-8-sig")
    with (tmp_path / "texts.txt").open(encoding="utf-8") as file:
        assert texts._lines(file) == ["ant", "\ufeffbee"]


@pytest.mark.parametrize("to_file", [True, False])
def test_the_labels_are_written_as_csv(petrov: Any, gateway: Any, tmp_path: Path, to_file: bool) -> None:
    target = tmp_path / "out.csv"
    texts = "ant\nbee bee\ncat\nant\nbee\ncat cat"  # the model's batch is four
    done = petrov("predict", "tally", "-", target if to_file else "-", stdin=texts, PETROV_URL=gateway.url)
    rows = list(csv.DictReader(io.StringIO(target.read_text() if to_file else done.stdout)))
    assert done.returncode == 0
    assert [row["text"] for row in rows] == texts.split("\n")
    assert [row["label"] for row in rows] == ["ant", "bee", "cat", "ant", "bee", "cat"]
    assert all(float(row["probability"]) > float(row["runner_up_probability"]) > 0 for row in rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["out.csv"] if to_file else [])


def test_every_word_has_a_row_where_every_token_has_a_label(petrov: Any, gateway: Any) -> None:
    done = petrov("predict", "kinds", "-", "-", stdin="ant cat\nbee\n", PETROV_URL=gateway.url)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert done.returncode == 0
    assert [(row["text"], row["word"], row["label"]) for row in rows] == [
        ("ant cat", "ant", "ant"),
        ("ant cat", "cat", "cat"),
        ("bee", "bee", "bee"),
    ]


def test_tokens_in_a_file_are_predicted_into_a_file(petrov: Any, gateway: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", SINGLE)
    done = petrov("predict", "tally", tmp_path / "in.npy", tmp_path / "out.npy", PETROV_URL=gateway.url)
    assert done.returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), toy_sequences.compute("tally", SINGLE))


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (("tally", "ant dog"), "", 3, '"dog" at character 4 is not in the vocabulary, which begins with ant bee cat'),
        (("tally", "-"), "ant\nant\nant dog", 3, 'line 3: "dog" at character 4'),
        (("tally", "ant " * 41), "", 3, "expected 1 to 40 words but got 41"),
        (("blur", "ant"), "", 2, '"blur" takes numbers and no text: expected a file that ends in .e or '),
        (("tally", "ant", "out.txt"), "", 2, "ends in .csv but got out.txt"),
        (("tally", "in.npy"), "", 2, "does not exist"),
    ],
)
def test_a_fault_ends_with_its_code(
    petrov: Any, gateway: Any, arguments: Any, stdin: str, code: int, message: str
) -> None:
    done = petrov("predict", *arguments, stdin=stdin, PETROV_URL=gateway.url)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_the_lists_show_words_and_labels(petrov: Any, gateway: Any) -> None:
    listed = petrov("models", PETROV_URL=gateway.url).stdout
    for words in ("tally", "1 to 40 words", "4 to 64 points, 2-D"):
        assert words in listed
    shown = petrov("model", "kinds", PETROV_URL=gateway.url).stdout
    for words in ("name the animal", "ant bee cat", "ant, bee, cat", "every token", "accuracy", "0.5"):
        assert words in shown
