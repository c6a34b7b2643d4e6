"""The formats of data files: which reader opens a file.

Readers of ours are named in a table, those of other packages by entry points of the group `petrov.readers`, whose name
is the format, and the suffix that `auto` takes for it. A reader is imported when a file needs it. Which one that is, a
file's suffix and its contents decide, never the rank of its arrays.
"""

from __future__ import annotations

import json
import lzma
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from zipfile import BadZipFile

import h5py

from training.data.readers import dedalus, exodus, hdf5, published
from training.data.readers.data_file import (
    MESHES,
    DataFile,
    LazyArray,
    ReadError,
    Rows,
    beginning_of,
    damage_named,
    each_way,
    natural,
)
from training.data.readers.splits import with_splits_joined
from training.data.readers.tables import kind_of_table
from training.data.readers.unwritten import missing_filters

GROUP = "petrov.readers"
READERS = {
    "npy": "arrays:open_npy",
    "npz": "arrays:open_npz",
    "hdf5": "hdf5:open_hdf5",
    "mat": "arrays:open_matlab",
    "pt": "tensors:open_torch",
    "pdebench": "published:open_pdebench",
    "well": "published:open_the_well",
    "dedalus": "dedalus:open_dedalus",
    "zarr": "labelled:open_zarr",
    "netcdf": "labelled:open_netcdf",
    "mesh": "mesh:open_mesh",
    "series": "series:open_series",
    "vtk": "vtk:open_image",
    "csv": "tables:open_table",
    "comsol": "tables:open_table",
    "json": "objects:open_json",
    "arrow": "arrow:open_arrow",
}
SUFFIXES = (
    {".npy": "npy", ".npz": "npz", ".mat": "mat", ".pt": "pt", ".pth": "pt", ".zarr": "zarr"}
    | dict.fromkeys((".nc", ".nc4", ".cdf"), "netcdf")
    | dict.fromkeys((".parquet", ".feather", ".arrow"), "arrow")
    | {
        ".pvd": "series",
        ".series": "series",
        ".vti": "vtk",
        ".vtr": "vtk",
        ".csv": "csv",
        ".tsv": "csv",
        ".json": "json",
        ".jsonl": "json",
        ".ndjson": "json",
    }
    | dict.fromkeys((".vtu", ".vtk", ".vtp", ".msh", ".xdmf", ".xmf", ".inp", *exodus.SUFFIXES), "mesh")
)
WITHOUT_SPLITS = MESHES | {"vtk", "pdebench", "well"}  # formats of one layout
INSTALLED = {
    "arrow": "pip install pyarrow, or with pandas d = pandas.read_{suffix}('{path}'); np.savez('data.npz', "
    "**{{k: np.stack(d[k]) for k in d}})"
}
"""What to do where the package of a format is missing, if nothing of ours installs it."""
LISTS = (".pvd", ".series")  # of meshes, one for each time: of ParaView, and of ParaView and OpenFOAM
PARTS = {".pvtu", ".pvtp"}  # which name the parts of a mesh
XDMF = frozenset({".xdmf", ".xmf"})
TEXT = {".txt", ".xy", ".raw", ".dat", ".out", ""}  # suffixes of tables that other files have, too
SAVE_ARRAYS = "save arrays of numbers, np.savez('data.npz', k=k, u=u)"
SAVE_MESHES = "save a .vtu file per sample, as ParaView and meshio do"
UNREAD = (
    dict.fromkeys((".pkl", ".pickle", ".joblib"), f"pickled Python objects, which are never unpickled: {SAVE_ARRAYS}")
    | dict.fromkeys((".tfrecord", ".tfrecords"), f"records of TensorFlow, as MeshGraphNets has them: {SAVE_ARRAYS}")
    | dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet: save it as .csv")
    | dict.fromkeys((".cgns", ".cas", ".dat", ".tec", ".plt", ".szplt", ".ensi", ".case", ".frd"), SAVE_MESHES)
    | dict.fromkeys((".odb", ".rst", ".op2", ".mph", ".mphtxt", ".stl", ".ply", ".obj", ".vtkhdf"), SAVE_MESHES)
    | dict.fromkeys((".vtm", ".vtmb"), "a list of blocks: name the mesh of the domain in it, internal.vtu of OpenFOAM")
    | dict.fromkeys((*PARTS, ".pvti", ".pvtr", ".pvts"), "a list of parts of a mesh: save the whole, as ParaView does")
    | {".foam": "a mark of a case of OpenFOAM: foamToVTK writes its meshes, and a .vtm.series of all times"}
    | {".vts": "a curved grid of VTK: save its arrays as .npz, or the grid as .vtu"}
    | dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp"), f"an image: {SAVE_ARRAYS}")
    | dict.fromkeys((".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"), "an archive: unpack it")
    | dict.fromkeys((".grib", ".grb", ".grib2"), "GRIB: save it as netCDF, grib_to_netcdf or xarray with cfgrib")
    | dict.fromkeys((".lmdb", ".mdb", ".npk", ".bin", ".raw"), f"bytes of a layout that no file says: {SAVE_ARRAYS}")
)
"""What files of other suffixes hold, and how to save them otherwise."""
UNREAD_HDF5 = {
    "topologies": "expected arrays but found a checkpoint of Firedrake, whose values are in an order of its own: save "
    "each function with VTKFile('run.pvd').write(u), a folder per run",
    "Function": "expected arrays but found what FEniCS writes beside an .xdmf file: name the .xdmf file",
    "VTKHDF": f"expected arrays but found a mesh of VTK in HDF5: {SAVE_MESHES}",
}
"""Meshes in HDF5 by a group that tells them, and how to save them otherwise."""


def readers() -> dict[str, EntryPoint]:
    """Return the readers by the names of their formats: ours, then those of installed packages."""
    own = {name: EntryPoint(name, f"training.data.readers.{value}", GROUP) for name, value in READERS.items()}
    return installed(*sys.path) | own


@cache
def installed(*_path: str) -> dict[str, EntryPoint]:
    """Return the readers of packages on a path; to look for them takes longer than most files do to open."""
    return {each.name: each for each in sorted(entry_points(group=GROUP))}


@contextmanager
def open_file(path: Path, format_: str = "auto") -> Iterator[DataFile]:
    """Open a data file with the reader of its layout.

    Args:
        path: The file, or the folder of a zarr store.
        format_: A name of `readers()`, or `auto`.

    Raises:
        ReadError: There is no such file, its layout is not known, or a package that reads it is not installed.
    """
    if not path.exists():
        raise ReadError(f"{path}: expected a file but there is none")
    if any(not (each.is_file() or each.is_dir()) for each in (path, *(path.rglob("*") if path.is_dir() else ()))):
        raise ReadError(f"{path}: expected a regular file but found a pipe, a device or a broken link")
    if path.is_dir() and any(each.is_symlink() for each in path.rglob("*")):
        raise ReadError(f"{path}: expected a folder without links to other files")
    name = detect(path) if format_ == "auto" else format_
    if name not in (known := readers()):
        raise ReadError(f"{path}: expected a format among auto, {', '.join(known)} but got {name!r}")
    try:
        reader = known[name].load()
    except ModuleNotFoundError as error:
        remedy = INSTALLED.get(name, "make describe FILE={path} installs it").format(path=path, suffix=path.suffix[1:])
        raise ReadError(f"{path}: {name} is read with {error.name}, which is not installed: {remedy}") from error
    found: AbstractContextManager[DataFile] = reader(path)
    with found as file:
        yield with_damage_named(file if file.format in WITHOUT_SPLITS else with_splits_joined(file))


def with_damage_named(file: DataFile) -> DataFile:
    """Return a file whose arrays name it, and the samples, where their values are damaged or packed as none can read.

    What precedes the values of a file does not tell it.
    """

    def named(arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
        return {
            name: replace(one, rows=each_way(one.rows, partial(partial, rows_or_damage, file.path, one.name)))
            for name, one in arrays.items()
        }

    pieces = tuple(with_damage_named(piece) for piece in file.pieces)
    return replace(file, arrays=named(file.arrays), parts=named(file.parts), pieces=pieces)


def rows_or_damage(path: Path, name: str, read: Rows, start: int, stop: int) -> Any:
    """Read the samples `start` to `stop` of the array of a name.

    Raises:
        ReadError: They cannot be decoded.
    """
    try:
        return read(start, stop)
    except ReadError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, BadZipFile, zlib.error, lzma.LZMAError) as error:
        if path.is_file() and h5py.is_hdf5(path) and (filters := missing_filters(path)):
            raise ReadError(
                f"{path}: {name!r} cannot be read: HDF5 does not have the filter {' and '.join(filters)} here: "
                f"where it has, write the file without, h5repack -f NONE {path.name} new{path.suffix}"
            ) from error
        raise ReadError(
            f"{path}: {name!r} cannot be read from sample {start} to {max(start, stop - 1)} ({error}): copy the "
            "file again; if it is packed in a way that is not known here, write it without, as h5repack does"
        ) from error


def meshes_in(folder: Path) -> list[Path]:
    """Return the mesh files of a folder in order, those of the most frequent suffix; none where it is no folder.

    Lists of meshes, `.pvd` or `.series`, come before the files that they list.
    """
    found = sorted(folder.iterdir(), key=natural) if folder.is_dir() else []
    if lists := lists_of(found):
        return lists
    meshes = [path for path in found if SUFFIXES.get(path.suffix.lower()) == "mesh"]
    refuse_parts(meshes, found)
    suffixes = Counter(path.suffix for path in meshes)
    return [path for path in meshes if path.suffix == max(suffixes, key=lambda each: suffixes[each])]


def refuse_parts(meshes: Sequence[Path], beside: Iterable[Path]) -> None:
    """Refuse meshes that a file beside them calls the parts of one, which the processes of a run have written.

    Raises:
        ReadError: There are such meshes: each would be a sample, or a step.
    """
    names = {path.name for path in meshes}
    for path in (each for each in beside if each.suffix.lower() in PARTS):
        try:
            pieces = ET.parse(path).iter("Piece")  # noqa: S314 -- expat bounds and ignores entities
        except ET.ParseError:
            continue
        if len(parts := [name for each in pieces if (name := Path(each.get("Source", "")).name) in names]) > 1:
            raise ReadError(
                f"{path}: expected a mesh in one file but {parts[0]} and {parts[-1]} are parts of one: open it in "
                "ParaView, and save the whole as .vtu after Merge Blocks, without ghosts"
            )


def lists_of(files: Iterable[Path]) -> list[Path]:
    """Return the lists of meshes among some files: those of ParaView, or else those of OpenFOAM."""
    found: dict[str, list[Path]] = {suffix: [] for suffix in LISTS}
    for path in files:
        if path.suffix.lower() in found:
            found[path.suffix.lower()].append(path)
    return next((paths for paths in found.values() if paths), [])


def lists_in(folder: Path) -> list[Path]:
    """Return the list of meshes, `.pvd` or `.series`, in a folder; none where it has none.

    Raises:
        ReadError: It has several.
    """
    found = lists_of(sorted(folder.iterdir()))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ReadError(
            f"{folder}: expected one list of meshes but found several, {names}: name one, as in "
            f"files = ['{folder.name}/{found[0].name}']"
        )
    return found


def entries_of(path: Path) -> list[tuple[str, str]]:
    """Return the files that a list of meshes names, and their times as it writes them; of blocks, the inner mesh."""
    if path.suffix.lower() == ".pvd":
        entries = ET.parse(path).iter("DataSet")  # noqa: S314 -- expat bounds and ignores entities
        return [(entry.get("file") or "", entry.get("timestep") or "") for entry in entries]
    content = json.loads(path.read_text(encoding="utf-8-sig"))
    listed = content.get("files") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) and "name" in each for each in listed):
        raise ValueError('expected {"files": [{"name": ..., "time": ...}, ...]}')
    return [(inner_of(path.parent, str(each["name"])), str(each.get("time", ""))) for each in listed]


def inner_of(folder: Path, name: str) -> str:
    """Return the mesh of the domain that a file of blocks, `.vtm` of OpenFOAM, names; of another file its name."""
    if Path(name).suffix.lower() != ".vtm" or not (folder / name).is_file():
        return name
    blocks = [*ET.parse(folder / name).iter("DataSet")]  # noqa: S314 -- expat bounds and ignores entities
    inner = next((each for each in blocks if each.get("name") == "internal"), blocks[0] if blocks else None)
    beside = Path(name).with_suffix("") / "internal.vtu"
    return str(beside if inner is None else Path(name).parent / (inner.get("file") or ""))


def named_in(path: Path) -> list[Path]:
    """Return the files that a list of meshes, or an XDMF file, names: what it holds is in them."""
    suffix = path.suffix.lower()
    if suffix not in {*LISTS, ".xdmf", ".xmf"}:
        return []
    try:
        if suffix in LISTS:
            names = [name for name, _ in entries_of(path)]
        else:
            heavy = (item for item in ET.parse(path).iter("DataItem") if item.get("Format", "XML") != "XML")  # noqa: S314 -- as above
            names = [(item.text or "").strip().partition(":")[0] for item in heavy]
    except (ET.ParseError, ValueError, KeyError, TypeError):
        return []  # the reader says what is wrong
    found = {path.parent / name: None for name in names if name}
    # Others are refused when they are read.
    within = path.resolve().parent
    return [
        each for each in found if each.resolve().is_relative_to(within) and each.is_file() and ".." not in each.parts
    ]


def is_temporal(path: Path) -> bool:
    """Return whether an XDMF or an Exodus file holds steps in time."""
    if path.suffix.lower() in exodus.SUFFIXES:
        with damage_named(path, "an Exodus file"):
            return len(exodus.times_of(path)) > 1
    try:
        grids = ET.parse(path).iter("Grid")  # noqa: S314 -- expat bounds and ignores entities
        return any(grid.get("CollectionType") == "Temporal" for grid in grids)
    except ET.ParseError:
        return False  # the reader says what is wrong


def detect(path: Path) -> str:
    """Return the name of the reader for a file.

    Raises:
        ReadError: No reader fits.
    """
    if path.suffix.lower() in SUFFIXES:
        temporal = path.suffix.lower() in XDMF | exodus.SUFFIXES and is_temporal(path)
        return "series" if temporal else SUFFIXES[path.suffix.lower()]
    if (name := path.suffix.lower().removeprefix(".")) in readers() and name not in READERS:
        return name
    if path.is_dir():
        return detect_folder(path)
    if path.suffix.lower() == ".cgns":  # HDF5, too
        raise ReadError(f"{path}: {path.suffix} is not read: {UNREAD['.cgns']}")
    if path.suffix.lower() in {".h5", ".hdf5", ".hdf"} or h5py.is_hdf5(path):
        return detect_hdf5(path)
    if zipfile.is_zipfile(path):
        return detect_archive(path)
    if path.suffix.lower() in TEXT and (kind := kind_of_table(path)):
        return kind
    if path.suffix.lower() in UNREAD:
        raise ReadError(f"{path}: {path.suffix} is not read: {UNREAD[path.suffix.lower()]}")
    raise ReadError(
        f"{path}: expected one of the formats {', '.join(readers())}; name it as `format` if it is one, "
        f"or else {SAVE_ARRAYS}{beginning_of(path)}"
    )


def is_store(folder: Path) -> bool:
    """Return whether a folder is a zarr store."""
    return folder.suffix == ".zarr" or any((folder / name).exists() for name in ("zarr.json", ".zgroup", ".zarray"))


def detect_folder(path: Path) -> str:
    """Return the name of the reader for a folder: a store of zarr, or meshes that are the steps of a series."""
    if is_store(path):
        return "zarr"
    if lists_in(path) or len(meshes_in(path)) > 1:
        return "series"
    raise ReadError(
        f"{path}: expected a file, a zarr store or a series of meshes but found a folder of others: "
        "give the files in it, or the folder that holds it"
    )


def detect_archive(path: Path) -> str:
    """Return the name of the reader for a zip archive."""
    with zipfile.ZipFile(path) as archive:
        names = {*archive.namelist()}
    if names & {"zarr.json", ".zgroup", ".zarray"}:
        return "zarr"
    kinds = {".npy": "npz", "data.pkl": "pt"}
    for end, kind in kinds.items():
        if any(name.endswith(end) for name in names):
            return kind
    if path.suffix.lower() in UNREAD:  # spreadsheets are archives, too
        raise ReadError(f"{path}: {path.suffix} is not read: {UNREAD[path.suffix.lower()]}")
    raise ReadError(f"{path}: expected an archive of arrays but found {', '.join(sorted(names)[:3])} …: unpack it")


def is_frame(_: str, item: h5py.Group | h5py.Dataset) -> bool | None:
    """Return whether a group of HDF5 is a table of pandas, as a visitor that goes on where it is none."""
    return "pandas_type" in item.attrs or None


def detect_hdf5(path: Path) -> str:
    """Return the name of the reader for an HDF5 file."""
    with hdf5.opened(path) as file:
        if published.is_the_well(file):
            return "well"
        if dedalus.is_dedalus(file):
            return "dedalus"
        for group, reason in UNREAD_HDF5.items():
            if group in file:
                raise ReadError(f"{path}: {reason}")
        if "PYTABLES_FORMAT_VERSION" in file.attrs and file.visititems(is_frame):
            raise ReadError(
                f"{path}: expected arrays but found a table of pandas, with its columns in blocks: save it with "
                "to_parquet or to_csv"
            )
        if "_NCProperties" in file.attrs:  # netCDF-4, whatever its suffix
            return "netcdf"
        return "pdebench" if published.is_single(file) or published.is_per_sample(file) else "hdf5"
