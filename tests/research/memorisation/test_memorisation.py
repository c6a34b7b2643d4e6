"""Memorisation: draws meet the theorem's conditions, stacked networks are independent, written rows are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from research.commands import app
from research.memorisation import command, continuous, training
from research.memorisation.continuous import NumberFunction, nearest, running
from research.memorisation.curves import curves, height, smallest
from research.memorisation.sequences import Pairs, alone, pairs, senses
from research.memorisation.training import learning, network
from research.memorisation.trials import (
    EXPERIMENTS,
    CounterExample,
    NamedEntities,
    RandomSets,
    Record,
    Row,
    Senses,
    Sets,
    Trial,
)
from research.sequences.corpus import UNLABELLED, CorpusError, SequenceData
from research.sequences.networks import MemoriserConfig, build
from research.sequences.problems.memoriser import DESCRIPTION as MEMORISER
from research.sequences.problems.memoriser import LetterSets, read_sentences
from research.sequences.recipe import SequenceRecipe, load
from training import checkpoint, recipes
from training.fit import run
from training.messages import UserError

FIGURES = Path(__file__).parents[3] / "docs" / "memorisation"
SMALL = MemoriserConfig(channels=8, hidden=16)

TWEETS = "@ann\tO\nin\tO\nNew\tB-location\nYork\tI-location\n#\tO\n\t\nBob\tB-person\nsaid\tO\n\nno\tO\n"
WEB = "# sent_id = 1\n# text = in Rome\n1\tin\tO\t-\t-\n2\tRome\tB-LOC\t-\tann\n\n# text = #\n1\t#\tO\t-\t-\n\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Artificial files of both corpora."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "wnut17_train.conll").write_text(TWEETS)
    (tmp_path / "text" / "uner_en_ewt-ud-dev.iob2").write_text(WEB)
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    return tmp_path


def chosen(*overrides: str) -> SequenceRecipe:
    found = recipes.read(recipes.find("memoriser-tiny"), [*overrides])
    assert isinstance(found, SequenceRecipe)
    return found


def test_random_sets_are_different_sets_of_different_words() -> None:
    data = pairs(Trial(data=RandomSets(sequences=20, length=3, words=6), seed=3))
    assert data.tokens.shape == data.labels.shape == (20, 3)
    sets = [frozenset(row) for row in data.tokens.tolist()]
    assert {len(each) for each in sets} == {3}
    assert len({*sets}) == 20  # all there are
    assert {word for each in sets for word in each} == {*range(1, 7)}
    assert torch.equal(pairs(Trial(data=RandomSets(sequences=20, words=6), seed=3)).labels, data.labels)
    with pytest.raises(ValueError, match="at most 20 sets of 3 of 6"):
        pairs(Trial(data=RandomSets(sequences=21, length=3, words=6)))


def test_the_best_map_without_context_gives_the_commonest_label() -> None:
    tokens, labels = torch.tensor([[1, 2, 3], [1, 2, 0]]), torch.tensor([[0, 1, 1], [1, 1, UNLABELLED]])
    assert alone(Pairs(tokens, labels, 4, 2)) == pytest.approx(4 / 5)


def test_only_what_can_be_stacked_is_trained_together() -> None:
    trials = [Trial(data=RandomSets(words=words), seed=seed) for words in (8, 10) for seed in range(3)]
    others = [Trial(data=RandomSets(labels=2)), Trial(network=SMALL), Trial(constructed=True)]
    assert list(training.groups([*trials, *others])) == [trials, *([each] for each in others)]


def test_networks_in_a_stack_share_nothing() -> None:
    """Networks with different numbers of sequences, lengths and tokens learn in a stack as they do alone."""
    kinds = (RandomSets(sequences=6), RandomSets(sequences=9, length=4, words=12))
    trials = [Trial(data=data, network=SMALL, seed=seed, steps=4) for seed, data in enumerate(kinds)]

    def learned(*some: Trial) -> list[torch.Tensor]:
        data = [pairs(trial) for trial in some]
        networks = [network(*each) for each in zip(some, data, strict=True)]
        state = training.stack(networks)
        tokens, labels = (
            training.together([getattr(each, name) for each in data], value)
            for name, value in (("tokens", 0), ("labels", UNLABELLED))
        )
        training.train(some[0], state, training.side_by_side(networks[0]), tokens, labels)
        return [*state["layer.attention.query.weight"].detach()]

    both, fresh = learned(*trials), [network(trial, pairs(trial)) for trial in trials]
    for trial, found, begun in zip(trials, both, fresh, strict=True):
        torch.testing.assert_close(found, learned(trial)[0], rtol=1e-3, atol=1e-5)
        assert (found - begun.layer.attention.query.weight).abs().max() > 1e-3


def test_a_constructed_head_separates_all_contexts_and_is_not_trained() -> None:
    trial = Trial(data=RandomSets(sequences=16), constructed=True, steps=3)
    data = pairs(trial)
    built = network(trial, data)
    head = built.layer.attention
    assert all(torch.linalg.matrix_rank(each.weight) == 1 for each in head.children())
    with torch.no_grad():
        outputs = head(built.embedding(data.tokens)).flatten(0, 1)
        assert torch.equal(built.layer(built.embedding(data.tokens)), built.layer.second(outputs).view(16, 3, -1))
    assert torch.pdist(outputs).min() > 1e-3  # at a length of about 4
    state = training.stack([built])
    training.train(trial, state, training.side_by_side(built), data.tokens[None], data.labels[None])
    changed = {name for name, weight in state.items() if not torch.equal(weight[0], built.state_dict()[name])}
    assert changed == {name for name in state if name.startswith(learning(trial))}


@pytest.mark.parametrize("rank", [1, 16])
def test_hardmax_fails_on_the_counter_example_where_softmax_does_not(rank: int) -> None:
    """Two of eight labels belong to a common end of the other sequence."""
    found = {}
    for hard in (False, True):
        sizes = MemoriserConfig(hidden=128, rank=rank, hard=hard)
        [row] = training.memorise([Trial(data=CounterExample(), network=sizes, steps=60 if hard else 300)])
        found[hard] = row.tokens
    assert found[False] == 1
    assert found[True] <= 0.75


def test_written_rows_are_not_computed_again(tmp_path: Path) -> None:
    trials = [Trial(network=SMALL, seed=seed, steps=2, constructed=seed == 2) for seed in range(3)]
    path, counts = tmp_path / "x.json", list[int]()
    first = command.complete("sequences", trials[:2], path)
    assert [row.trial for row in first.rows] == trials[:2]
    whole = command.complete("sequences", trials, path, counts.append)
    assert counts == [1]
    assert whole.rows[:2] == first.rows
    assert Record.model_validate_json(path.read_text()) == whole
    assert command.complete("sequences", trials, path, counts.append) == whole
    assert counts == [1]


def test_the_least_network_is_the_smallest_that_succeeded_often_enough() -> None:
    rows = [
        Row(trial=Trial(seed=seed), parameters=size, pairs=12, tokens=tokens)
        for size, seed, tokens in ((10, 0, 1.0), (10, 1, 0.9), (20, 0, 1.0), (20, 1, 1.0), (40, 0, 1.0))
    ]
    assert smallest(rows, any) == {12: 10}
    assert smallest(rows, all) == {12: 20}
    assert smallest(rows[:2], all) == {12: None}


def test_curves_gather_seeds() -> None:
    rows = [
        Row(trial=Trial(data=RandomSets(sequences=n), seed=seed), parameters=1, tokens=tokens)
        for n, seed, tokens in ((16, 0, 0.5), (8, 0, 1.0), (16, 1, 0.7))
    ]
    [(label, points)] = curves("sequences", rows, height).items()
    assert label == "softmax, rank 1"
    assert points == [(8, (1.0,)), (16, (0.5, 0.7))]
    assert points[1].mean == pytest.approx(0.6)


@pytest.mark.deep
def test_published_figures_are_those_of_the_experiments(tmp_path: Path) -> None:
    """The files have every row, so that the command only prints and draws, and the claims hold."""
    for name in EXPERIMENTS:
        (tmp_path / f"{name}.json").write_bytes((FIGURES / f"{name}.json").read_bytes())
    result = CliRunner().invoke(app, ["memorise", "--out", str(tmp_path), "--plot", str(tmp_path / "x.png")])
    assert result.exit_code == 0, result.output
    assert "smallest network" in result.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    rows = command.read(FIGURES / "sequences.json")
    assert [row.trial for row in rows] == list(EXPERIMENTS["sequences"]())
    soft, hard = (
        {(row.trial.data, row.trial.seed): row.tokens for row in rows if row.trial.form == f"{kind}, rank 1"}
        for kind in ("softmax", "hardmax")
    )
    assert all(soft[case] > hard[case] for case in soft)
    assert all(soft[RandomSets(sequences=8), seed] == 1 for seed in range(2))


def test_unknown_experiments_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["memorise", "nothing", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "nothing" in result.output


def test_what_is_no_folder_no_picture_and_no_rows_is_refused_before_any_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "run", lambda group: pytest.fail(f"trained {group}"))
    (tmp_path / "heads.json").write_text("{}")
    for options, message in (
        (["--out", str(tmp_path / "heads.json")], "is a file"),
        (["--out", str(tmp_path), "--plot", str(tmp_path / "a.doc")], "expected a file that ends in"),
    ):
        result = CliRunner().invoke(app, ["memorise", "heads", *options])
        assert result.exit_code == 2
        assert message in " ".join(result.output.replace("│", " ").split())
    with pytest.raises(UserError, match=r"heads.json: expected rows that this command wrote"):
        CliRunner().invoke(app, ["memorise", "heads", "--out", str(tmp_path)], catch_exceptions=False)


def test_the_functions_are_those_of_the_formulas_and_only_positions_break_equivariance() -> None:
    numbers = torch.tensor([0.1, 0.7, 0.4])
    torch.testing.assert_close(nearest(numbers), torch.tensor([0.3, 0.3, 0.3]))
    torch.testing.assert_close(running(numbers), torch.tensor([0.1, 0.7, 0.7]))
    sets, order = torch.rand(5, 4), torch.tensor([3, 1, 0, 2])
    fitted, located = NumberFunction(SMALL), NumberFunction(SMALL, 4)
    torch.testing.assert_close(fitted(sets[:, order]), fitted(sets)[:, order])
    assert not torch.allclose(located(sets[:, order]), located(sets)[:, order], atol=1e-3)


@pytest.mark.parametrize("data", [Sets(), Sets(function="running")], ids=lambda data: data.function)
def test_a_function_is_learned_in_part(data: Sets) -> None:
    trials = [Trial(data=data, network=SMALL, positions=True, steps=80, seed=seed) for seed in range(2)]
    rows = continuous.fit(trials)
    assert [row.trial for row in rows] == trials
    assert all(row.error is not None and row.error < 1 for row in rows)  # a constant has 1
    with pytest.raises(TypeError, match="expected a function of sets but got random"):
        continuous.fit([Trial()])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sets_of_the_test_are_not_learned(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def recorded(sets: torch.Tensor) -> torch.Tensor:
        seen.append(sets)
        return nearest(sets)

    monkeypatch.setitem(continuous.FUNCTIONS, "nearest", recorded)
    continuous.fit([Trial(data=Sets(), network=SMALL, steps=2, seed=seed)])
    learned, test = torch.cat([sets[0] for sets in seen[:2]]), seen[-1]
    assert len(learned) == 2 * continuous.BATCH
    assert len(test) == continuous.SETS
    assert not {*map(tuple, learned.tolist())} & {*map(tuple, test.tolist())}


def test_a_word_and_its_cue_decide_the_label_and_a_word_alone_does_not() -> None:
    data = Senses(sentences=400)
    learned, unseen = senses(data, seed=1)
    table: dict[tuple[int, int], int] = {}
    for tokens, labels in zip(*(torch.cat(pair).tolist() for pair in zip(learned, unseen, strict=True)), strict=True):
        [cue] = [token for token in tokens if token > data.words]
        for token, label in zip(tokens, labels, strict=True):
            assert (label == UNLABELLED) is (token == cue)
            assert table.setdefault((token, cue), label) == label
    assert len(unseen.tokens) == 500
    assert {*learned.tokens.flatten().tolist()} == {*range(1, 1 + data.words + data.cues)}
    assert alone(pairs(Trial(data=data, seed=1))) < 0.6


def test_labels_that_need_context_are_learned_and_hold_for_new_sentences() -> None:
    data = Senses(sentences=200, length=5, words=6, cues=2, labels=2)
    [row] = training.memorise([Trial(data=data, network=MemoriserConfig(hidden=32), steps=150, batch=50)])
    assert row.alone < 0.9
    assert row.unseen is not None
    assert min(row.tokens, row.unseen) > 0.95


def test_a_recipe_has_several_heads_of_either_kind() -> None:
    built = [build(chosen(*each).operator, MEMORISER) for each in (("operator.heads=4", "operator.hard=true"), ())]
    assert [built[0].layer.attention.heads, built[0].layer.attention.hard] == [4, True]
    rows = [each.layer.attention.query.weight.shape[0] for each in built]
    assert rows == [4 * rows[1], rows[1]]


@pytest.mark.usefixtures("library")
def test_sentences_of_both_forms_are_read() -> None:
    assert read_sentences("wnut17", 3, 9)[1:] == [[("Bob", "B-person"), ("said", "O")], [("no", "O")]]
    assert read_sentences("wnut17", 2, 4)[0] == [("Bob", "B-person"), ("said", "O")]
    assert read_sentences("uner_en_ewt", 2, 9) == [[("in", "O"), ("Rome", "B-LOC")], [("#", "O")]]
    data = pairs(Trial(data=NamedEntities(sentences=2)))
    assert data.tokens.tolist() == [[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]
    assert data.labels.tolist() == [[0, 0, 1, 2, 0], [3, 0, *[UNLABELLED] * 3]]
    assert (data.words, data.classes, data.nothing) == (8, 4, 0)
    [row] = training.memorise([Trial(data=NamedEntities(sentences=2), network=SMALL, steps=150, batch=1)])
    assert (row.pairs, row.tokens, row.entities) == (7, 1.0, 1.0)


def test_errors_of_a_corpus_file_name_the_line(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorpusError, match=r"expected 4 sentences of up to 9 words .* but got 3"):
        read_sentences("wnut17", 4, 9)
    (library / "text" / "wnut17_train.conll").write_text("a\tO\nb O\n")
    with pytest.raises(CorpusError, match=r"line 2: expected 2 columns .* 'b O"):
        read_sentences("wnut17", 1, 9)
    monkeypatch.delenv("DATA_PATH")
    with pytest.raises(CorpusError, match=r"uner_en_ewt-ud-dev.iob2, .* CC BY-SA 4.0"):
        read_sentences("uner_en_ewt", 1, 9)


@pytest.mark.usefixtures("library")
def test_a_recipe_on_a_corpus_has_its_vocabulary() -> None:
    recipe = chosen("data.corpus=wnut17", "data.train=2", "data.validation=1", "data.test=2", "data.length=[0,9]")
    problem, splits = load(recipe, Path("nowhere"))
    assert problem.answer == "token"
    assert problem.encode("Bob in  York") == [6, 2, 4]
    assert problem.labels[splits["train"].labels[0][3]] == "I-location"
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [2, 1, 2]
    assert "CC BY 4.0" in problem.distribution


def test_labels_that_a_corpus_does_not_have_are_refused(library: Path) -> None:
    (library / "text" / "wnut17_train.conll").write_text("Bob\tB-person\nsaid\tB-word\n\n")
    recipe = chosen("data.corpus=wnut17", "data.train=1", "data.validation=1", "data.test=1", "data.length=[0,9]")
    with pytest.raises(CorpusError, match=r"wnut17_train.conll: expected the labels O, .* but got B-word"):
        load(recipe, Path("nowhere"))


def test_letters_come_in_different_sets_and_nothing_is_held_out() -> None:
    data = SequenceData(train=40, validation=3, test=40, length=(2, 4))
    splits = LetterSets(MEMORISER, data, 5, Path("nowhere")).read()
    [tokens], labels = splits["train"].inputs, splits["train"].labels
    assert len({frozenset(each.tolist()) for each in tokens}) == 40
    assert {len(each) for each in tokens} == {2, 3, 4}
    assert all(len(set(each.tolist())) == len(each) == len(own) for each, own in zip(tokens, labels, strict=True))
    assert all((a == b).all() for a, b in zip(splits["test"].inputs[0], tokens, strict=True))
    assert len(splits["validation"]) == 3
    colours = [MEMORISER.labels[label] for label in labels[0]]
    assert f"the first are {' '.join(chr(96 + token) for token in tokens[0])} with {' '.join(colours)}; " in (
        LetterSets(MEMORISER, data, 5, Path("nowhere")).description()
    )
    with pytest.raises(CorpusError, match="up to 26 for sets of 1 to 1"):
        LetterSets(MEMORISER, data.model_copy(update={"length": (1, 1)}), 5, Path("nowhere")).read()


def test_the_tiny_recipe_memorises_all_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    found = checkpoint.load(run.train(chosen(), tmp_path / "memoriser", tmp_path))
    assert found.card.accuracy[0]["accuracy"] == 1
    tokens = torch.tensor([[1, 2, 3, 0, 0]], dtype=torch.int32)
    network: Callable[..., torch.Tensor] = found.operator
    assert network(tokens).shape == (1, 5, 4)
    torch.testing.assert_close(network(tokens)[:, :3], network(tokens[:, :3]))
