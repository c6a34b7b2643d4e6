"""Samples that a model has seen, in its training or the choice of its epoch: its errors on others are larger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from training import checkpoint
from training.data.dataset import SampleFile
from training.files import digest
from training.fit.workload import ScopeError
from training.recipe import Recipe, RecipeError


def check_new(recipe: Recipe, data: Path, new: SampleFile) -> None:
    """Refuse samples that a model was trained on or chosen by, where these are there: its errors are smaller on them.

    The models that its weights come from count as well.

    Raises:
        ScopeError: There is one of them.
    """
    fresh = cache(lambda: [*new.digests(range(sum(new.counts)))])  # read once for all models, and for none not at all
    for of, each in (("", recipe), *((f" of {folder}", each) for folder, each in ancestors(recipe))):
        path = data / str(each.samples)
        if not path.is_file():
            continue
        known, *_ = seen_by(each, path)
        for number, sample in enumerate(fresh()):
            if sample in known:
                raise ScopeError(
                    f"{recipe.name}: expected new samples, but sample {number} of --files is the sample "
                    f"{known[sample]} of the training{of}, by its inputs"
                )


def check_all_new(recipe: Recipe) -> None:
    """Refuse new files in place of `data.files` where tensors have files of their own, which would be the old ones.

    Raises:
        ScopeError: A tensor has.
    """
    for one in recipe.file.in_files.values():
        if one.files and not getattr(one, "static", False):
            raise ScopeError(
                f"{recipe.name}: expected new samples of all tensors but {one.name} would be read from the files of "
                f"the training, {', '.join(one.files)}: --files is in place of data.files alone. Without --files the "
                "validation samples calibrate; a model that is trained on files that hold all tensors takes new ones"
            )


def check_kept_apart(folder: Path, samples: SampleFile, key: str) -> None:
    """Refuse samples that are kept apart where an earlier model has seen them, if its samples are still there.

    Its validation samples may be those of the new training. The models that its weights come from count as well.

    Args:
        folder: Of the earlier model, which a training starts from.
        samples: Those of the training.
        key: What names the model, for the message.

    Raises:
        CheckpointError: The earlier model cannot be read.
        RecipeError: It was trained on one of them, or chosen by one of the test samples.
    """
    recipe = checkpoint.read_config(folder).recipe if (folder / checkpoint.CONFIG).is_file() else None
    if not isinstance(recipe, Recipe) or recipe.problem_file is None:
        return
    kept_apart = cache(lambda split: [*samples.digests(samples.split(split))])  # as in `check_new`
    for home, each in ((folder, recipe), *ancestors(recipe)):
        path = samples.path.parent / str(each.samples)
        if path == samples.path or not path.is_file():
            continue
        known, train, validation = seen_by(each, path)
        for split, refused in (("validation", train), ("test", train + validation)):
            for row, sample in zip(samples.split(split), kept_apart(split), strict=True):
                if (number := known.get(sample, refused)) < refused:
                    raise RecipeError(
                        f"{key}: expected new {split} samples but sample {row} is the sample {number} of the "
                        f"{'training' if number < train else 'validation'} of {home}, by its inputs: name the files "
                        "that it was trained on first in data.files, since the last samples are kept apart"
                    )


def ancestors(recipe: Recipe) -> Iterator[tuple[Path, Recipe]]:
    """Return the models that the weights of a training come from, the last one first, as far as they are unchanged."""
    while recipe.start is not None and digest(folder := Path(recipe.start.folder)) == recipe.start.digest:
        found = checkpoint.read_config(folder).recipe
        if not isinstance(found, Recipe):
            return
        recipe = found
        yield folder, recipe


def seen_by(recipe: Recipe, path: Path) -> tuple[dict[bytes, int], int, int]:
    """Return the numbers of the samples that a model has seen, by their digests, and how many trained and chose it."""
    seen = SampleFile(path, recipe.file)
    train, validation, _ = seen.counts
    known = {sample: number for number, sample in enumerate(seen.digests(range(train + validation)))}
    seen.close()
    return known, train, validation
