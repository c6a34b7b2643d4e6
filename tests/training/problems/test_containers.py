"""Files that hold more than arrays of samples: groups in groups, other objects, splits in folders, axes by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import meshio
import numpy as np
import pytest
import torch
import xarray
from numpy.typing import NDArray
from scipy.io import savemat

from tests.drafts import Case, described
from training.data.readers import ReadError
from training.problems.sections import unconfirmed

RNG = np.random.default_rng(0)
K = 1 + RNG.random((20, 8, 9))
NU = RNG.uniform(0.1, 1, 20)
XY = RNG.random((20, 7, 2))
MOVING = RNG.random((20, 6, 8, 9))
PARTS = {"train": slice(0, 14), "valid": slice(14, 17), "test": slice(17, 20)}
TWICE = {"k": K, "u": 2 * K}


def layout(
    write: Callable[[Path], object],
    file: str,
    values: dict[str, NDArray[Any]],
    asked: frozenset[str] = frozenset(),
    said: tuple[str, ...] = (),
    output: str = "u",
) -> Case:
    return Case(write, file, output, asked, values, said)


def dataset(part: slice = slice(None)) -> xarray.Dataset:
    fields = {name: (("sample", "y", "x"), values[part]) for name, values in TWICE.items()}
    return xarray.Dataset(fields, {"x": np.linspace(0, 3, 9), "y": np.linspace(0, 2, 8)})


def tree_of_splits(folder: Path) -> None:
    xarray.DataTree.from_dict({name: dataset(part) for name, part in PARTS.items()}).to_netcdf(folder / "tree.nc")


def tree(folder: Path, *, store: bool = False) -> None:
    made = xarray.DataTree.from_dict({"/": dataset()[["k"]], "/fluid": dataset()[["u"]]})
    if store:
        made.to_zarr(folder / "tree.zarr", zarr_format=2)
    else:
        made.to_netcdf(folder / "tree.nc")


def swapped(folder: Path) -> None:
    found = dataset()
    found["u"] = found["u"].transpose("sample", "x", "y")
    found["depth"] = found["k"][0].transpose("x", "y").drop_vars(["x", "y"])
    found.to_netcdf(folder / "swapped.nc")


def groups_of_splits(folder: Path) -> None:
    with h5py.File(folder / "groups.h5", "w") as file:
        for name, part in PARTS.items():
            for number in range(part.start, part.stop):
                group = file.create_group(f"{name}/{number}")
                group["k"], group["u"], group.attrs["nu"] = K[number], 2 * K[number], NU[number]
            file[f"{name}/x"] = np.linspace(0, 3, 9)  # which is no sample


def files_with_attributes(folder: Path) -> None:
    for number, (k, nu) in enumerate(zip(K, NU, strict=True)):
        with h5py.File(folder / f"run_{number:02}.h5", "w") as file:
            file["k"], file["u"], file.attrs["nu"], file.attrs["code"] = k, nu * k, nu, "mine"
            file.attrs["dx"], file.attrs["ends"], file.attrs["mu"] = 0.5, [0, 1], number % 19


def parts_of_splits(folder: Path) -> None:
    for name, part in ("train_1", slice(0, 8)), ("train_2", slice(8, 14)), ("test_1", slice(14, 17)):
        np.savez(folder / f"ns_{name}.npz", **{key: values[part] for key, values in TWICE.items()})
    np.savez(folder / "ns_test_2.npz", **{key: values[17:] for key, values in TWICE.items()})


def folders_of_splits(folder: Path) -> None:
    for name, part in PARTS.items():
        (folder / name).mkdir()
        np.savez(folder / name / "data.npz", **{key: values[part] for key, values in TWICE.items()})


def files_of_splits(folder: Path) -> None:
    (folder / "config.json").write_text('["mine"]')
    for name, part in PARTS.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["k"], file["u"], file["x"], file["y"] = K[part], 2 * K[part], np.arange(9), np.arange(8)
            file.attrs.update({f"setting_{number}": number for number in range(5)})


def matlab_of_splits(folder: Path) -> None:
    for name, part in PARTS.items():
        turned = {key: np.moveaxis(values[part], 0, -1) for key, values in TWICE.items()}
        savemat(folder / f"heat_{name}.mat", turned | {"nu": NU[part]})


def sample_files_of_splits(folder: Path) -> None:
    for name, part in PARTS.items():
        for number in range(part.start, part.stop):
            np.savez(folder / f"{name}_{number:02}.npz", **{key: values[number] for key, values in TWICE.items()})


WIDE = np.concatenate([K, K[..., :1]], axis=-1)  # as many points as samples in a split


def groups_with_coordinates(folder: Path) -> None:
    with h5py.File(folder / "set.h5", "w") as file:
        for name, part in ("train", slice(10)), ("test", slice(10, 20)):
            file[f"{name}/k"], file[f"{name}/u"], file[f"{name}/x"] = WIDE[part], 2 * WIDE[part], np.arange(10)
            file[f"{name}/y"] = np.arange(8)


def numbered_runs(folder: Path) -> None:
    for number in range(20):
        (folder / f"runs/{number + 1}").mkdir(parents=True)
        for step in (1, 2):
            np.savez(folder / f"runs/{number + 1}/step_{step}.npz", k=K[number] * step, u=2 * K[number] * step)


def zones(folder: Path) -> None:
    rows = [f"{x},{y},{x},{x * y},{1 + (number > 9)}" for number, (x, y) in enumerate(XY[:, 0])]
    (folder / "one.csv").write_text("\n".join(["x,y,k,u,id", *rows]))


def beside_objects(folder: Path) -> None:
    np.savez(folder / "set.npz", **TWICE, about=np.array({"code": "mine"}, object))


def records(folder: Path) -> None:
    found = np.zeros(20, [("k", "f4", (8, 9)), ("u", ">f8", (8, 9)), ("nu", "f2")])
    found["k"], found["u"], found["nu"] = K, 2 * K, NU
    np.savez(folder / "set.npz", data=found)


def beside_metadata(folder: Path) -> None:
    torch.save(
        {**{key: torch.tensor(values) for key, values in TWICE.items()}, "about": {"dx": 0.1}}, folder / "set.pt"
    )


def pair(folder: Path) -> None:
    torch.save((torch.tensor(K), torch.tensor(2 * K)), folder / "set.pt")


def listed(folder: Path) -> None:
    lists = {key: [torch.tensor(one) for one in values] for key, values in TWICE.items()}
    torch.save({**lists, "codes": ["mine"]}, folder / "set.pt")


def runs_of_splits(folder: Path) -> None:
    for name, part in PARTS.items():
        for number in range(part.start, part.stop):
            run = folder / name / f"{number:02}"
            run.mkdir(parents=True)
            np.savez(run / "data.npz", **{key: values[number] for key, values in TWICE.items()})


def per_sample(folder: Path) -> None:
    samples = [
        {"k": torch.tensor(k), "u": torch.tensor(2 * k), "nu": torch.tensor(nu)} for k, nu in zip(K, NU, strict=True)
    ]
    torch.save(samples, folder / "set.pt")


def singletons(folder: Path) -> None:
    np.savez(folder / "set.npz", k=K[:, None, None], u=2 * K[..., None])


def beside_coordinates(folder: Path) -> None:
    with h5py.File(folder / "set.h5", "w") as file:
        file["fields/k"], file["fields/u"] = K, 2 * K
        file["grid/x"], file["grid/y"], file["notes"] = 1e-9 * np.arange(9), np.linspace(0, 2, 8), h5py.Empty("f4")


def long_table(folder: Path) -> None:
    rows = ["run;x;y;nu;u"]
    for number, (xy, nu) in enumerate(zip(XY, NU, strict=True)):
        rows += [f"{number};{x:.6f};{y:.6f};{nu:.6f};{nu * x:.6f}".replace(".", ",") for x, y in xy]
    (folder / "table.csv").write_text("\n".join(rows))


def sampled(folder: Path) -> None:
    for number, xy in enumerate(XY):
        rows = [f"{x} {y} 0 {x} {x * y}" for x, y in xy]
        (folder / f"p_{number:02}.raw").write_text("\n".join(["# k u  POINT_DATA 7", "#  x  y  z  k  u", *rows]))


def steps(folder: Path) -> None:
    with h5py.File(folder / "steps.h5", "w") as file:
        for number in range(20):
            file[f"step_{number}/k"], file[f"step_{number}/u"] = K[number], 2 * K[number]


def beside_frames(folder: Path) -> None:
    np.savez(folder / "set.npz", u=MOVING, power=MOVING[:, :, 0, 0], nu=NU)


def on_a_line(folder: Path) -> None:
    np.savez(folder / "set.npz", u=MOVING[:, :, 0], t=0.1 * np.arange(6), params=XY[:, :3, 0])


def clouds(folder: Path) -> None:
    samples = [{"pos": xy[: 7 - n % 2], "u": xy[: 7 - n % 2, 0], "k": xy[: 7 - n % 2, 1]} for n, xy in enumerate(XY)]
    torch.save([{name: torch.tensor(each) for name, each in one.items()} for one in samples], folder / "set.pt")


def with_index(folder: Path) -> None:
    for number, xy in enumerate(XY):
        rows = [f"{line},{x},{y},{x},{x * y}" for line, (x, y) in enumerate(xy)]
        (folder / f"p_{number:02}.csv").write_text("\n".join([",x,y,k,u", *rows]))


SEVEN = np.arange(7) < 7 - np.arange(20)[:, None] % 2
CASES = {
    "clouds of unequal sizes": layout(
        clouds,
        "set.pt",
        {
            "coordinates": np.where(SEVEN[..., None], XY, XY[:, :1]),  # padded with the first point
            "u": XY[..., 0] * SEVEN,
            "k": np.where(SEVEN, XY[..., 1], XY[:, :1, 1]),
            "counts": SEVEN.sum(axis=1),
        },
    ),
    "tables with the index of pandas": layout(
        with_index,
        "p_*.csv",
        {"coordinates": XY, "k": XY[..., 0], "u": XY.prod(axis=2), "counts": np.full(20, 7)},
        said=("# left out: column 1: it has no name, and numbers the lines",),
    ),
    "numbers beside trajectories on a line": layout(
        on_a_line,
        "set.npz",
        {"u": MOVING[:, :, 0], **{f"params_{n}": XY[:, n, 0] for n in range(3)}},
        frozenset({"time"}),
    ),
    "a table of all samples with decimal commas": layout(
        long_table,
        "table.csv",
        {"coordinates": XY, "nu": NU, "u": NU[:, None] * XY[..., 0], "counts": np.full(20, 7)},
        said=("run numbers 20 samples of 7 points",),
    ),
    "OpenFOAM: a sampled plane per sample": layout(
        sampled, "p_*.raw", {"coordinates": XY, "k": XY[..., 0], "u": XY.prod(axis=2), "counts": np.full(20, 7)}
    ),
    "groups that may be frames": layout(steps, "steps.h5", TWICE, frozenset({"samples"})),
    "numbers of every frame": layout(
        beside_frames, "set.npz", {"u": MOVING, "power": MOVING[:, :, 0, 0], "nu": NU}, frozenset({"inputs", "time"})
    ),
    "a tree of xarray with splits": layout(
        tree_of_splits, "tree.nc", TWICE, said=("test = 3", "validation = 3", "length = 3.0")
    ),
    "a tree of xarray": layout(tree, "tree.nc", {"k": K, "fluid_u": 2 * K}, output="fluid_u"),
    "a tree of xarray in zarr": layout(
        lambda folder: tree(folder, store=True), "tree.zarr", {"k": K, "fluid_u": 2 * K}, output="fluid_u"
    ),
    "axes in another order": layout(swapped, "swapped.nc", {**TWICE, "depth": np.broadcast_to(K[0], K.shape)}),
    "a group of each sample in each split": layout(
        groups_of_splits, "groups.h5", {**TWICE, "nu": NU}, said=("test = 3", "validation = 3")
    ),
    "attributes of a file per sample": layout(
        files_with_attributes,
        "run_*.h5",
        {"k": K, "u": NU[:, None, None] * K, "nu": NU, "mu": np.arange(20) % 19},
        frozenset({"samples"}),
        ("# left out: dx: it is 0.5 in run_00.h5", "# left out: ends: it is [0 1] in run_00.h5"),
    ),
    "several files for each split": layout(parts_of_splits, "ns_*.npz", TWICE, said=("test = 6",)),
    "a folder for each split": layout(folders_of_splits, ".", TWICE, said=("test = 3", "validation = 3")),
    "a file for each split, with coordinates": layout(
        files_of_splits, ".", TWICE, said=("test = 3", "validation = 3", "length = 7.0")
    ),
    "MATLAB: a file for each split": layout(
        matlab_of_splits, "heat_*.mat", TWICE | {"nu": NU}, frozenset({"samples"}), ("test = 3", "validation = 3")
    ),
    "files of one sample, named by splits": layout(
        sample_files_of_splits, "*.npz", TWICE, frozenset({"samples"}), ("test = 3", "validation = 3")
    ),
    "a group for each split, as many samples as points": layout(
        groups_with_coordinates,
        "set.h5",
        {"k": WIDE, "u": 2 * WIDE},
        said=("test = 10", "length = 9.0  # guess: x has its coordinates"),
    ),
    "numbers of steps in numbered runs": layout(numbered_runs, "runs", TWICE, frozenset({"samples"})),
    "objects beside arrays": layout(
        beside_objects, "set.npz", TWICE, said=("left out: about: it holds Python objects",)
    ),
    "records of NumPy": layout(records, "set.npz", {"data_k": K, "data_u": 2 * K, "data_nu": NU}, output="data_u"),
    "metadata beside tensors": layout(
        beside_metadata, "set.pt", TWICE, said=("left out: about/dx: it holds float, and no tensor",)
    ),
    "a pair of tensors": layout(pair, "set.pt", {"field_0": K, "field_1": 2 * K}, output="1"),
    "lists of a tensor per sample": layout(listed, "set.pt", TWICE, said=("# left out: codes: it holds list",)),
    "tensors of every sample": layout(per_sample, "set.pt", {**TWICE, "nu": NU}),
    "axes of one value": layout(singletons, "set.npz", TWICE),
    "coordinates beside fields, and what is empty": layout(
        beside_coordinates,
        "set.h5",
        {"fields_k": K, "fields_u": 2 * K},
        said=(
            "length = 8e-09  # guess: grid/x has its coordinates",
            'points = "nodes"',
            "left out: notes: it is empty",
        ),
        output="fields_u",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_draft_reads_the_right_values_or_asks(name: str, tmp_path: Path) -> None:
    assert {*CASES[name].check(tmp_path, rtol=1e-3)} == {*CASES[name].values}


@pytest.mark.parametrize(
    ("name", "asked"), [("nu_{}.5", True), ("{}.5", True), ("Re_{}00", True), ("run_{}", False), ("{}", False)]
)
def test_few_groups_may_hold_many_samples_each(name: str, asked: bool, tmp_path: Path) -> None:
    fields = np.random.default_rng(0).random((3, 30, 16))
    with h5py.File(tmp_path / "set.h5", "w") as file:
        for number, field in enumerate(fields):
            file[f"{name.format(number + 1)}/k"], file[f"{name.format(number + 1)}/u"] = field, 2 * field
    text = described(tmp_path / "set.h5")
    assert ("or does each of these 3 hold 30 samples?" in text) == asked
    assert ("samples" in unconfirmed(text).values()) == asked


def test_runs_in_folders_of_splits_are_not_mixed_without_being_asked_for(tmp_path: Path) -> None:
    runs_of_splits(tmp_path)
    assert "those of test and train and valid mixed" in described(tmp_path)


def test_meshes_named_by_splits_are_in_their_order(tmp_path: Path) -> None:
    for name in ("train_0", "train_1", "test_0"):
        fields = {"k": XY[0, :4, 0], "u": XY[0, :4, 1]}
        square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
        meshio.Mesh(square, {"quad": [[0, 1, 2, 3]]}, fields).write(tmp_path / f"{name}.xdmf", data_format="XML")
    text = described(tmp_path)
    assert "test = 1\n" in text
    assert re.search(r"train_0.*train_1.*test_0", text)


def test_rows_of_zones_are_no_samples_without_being_asked_for(tmp_path: Path) -> None:
    zones(tmp_path)
    assert "or are these the zones of one sample?" in described(tmp_path / "one.csv")


def test_numbers_that_stand_for_missing_ones_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "sea.npz", k=K, u=np.where(K > 1.9, -9999, K))
    text = described(tmp_path / "sea.npz")
    assert "# u has the value -9999, which may stand for missing ones: save NaN there, and name it in [mask]" in text
    assert "k has the value" not in text


@pytest.mark.parametrize("suffix", ["h5", "npz"])
def test_damaged_values_are_named_behind_a_whole_header(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"set.{suffix}"
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            for name, values in TWICE.items():
                file.create_dataset(name, data=values, chunks=(1, 8, 9), compression="gzip")
            start = file["u"].id.get_chunk_info(3).byte_offset
    else:
        np.savez_compressed(path, **TWICE)
        start = path.read_bytes().index(b"u.npy") + 4000
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(content)
    with pytest.raises(
        ReadError, match=rf"set\.{suffix}: 'u' cannot be read from sample 0 to 19 \(.*\): copy the file"
    ):
        described(path)


def test_a_folder_of_other_files_is_said_to_hold_them(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"k_{number}.png").write_bytes(b"image")
    with pytest.raises(ReadError, match=r"found 3 files \.png; \.png is not read: an image: save arrays of numbers"):
        described(tmp_path)
