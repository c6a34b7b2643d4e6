"""Files of netCDF, by xarray, with dimensions by their names and coordinates that are kept; and of MATLAB, by SciPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from petrov_client._guards import check_heaps, is_mistake
from petrov_client._labels import Labels, with_times
from petrov_client._libraries import hdf5, library, scipy_io, xarray
from petrov_client._matlab import complex_variables
from petrov_client._models import ModelInfo, attributes_of
from petrov_client._schema import COMPONENT, FRAME, ParameterInfo, TensorInfo

NETCDF, MATLAB = frozenset({".nc", ".nc4"}), ".mat"


@contextmanager
def named(path: Path, expected: str) -> Iterator[None]:
    """Name a file that a library cannot read: damage leads to errors of all kinds in it, most without a name.

    A mistake of ours is raised as it is.

    Raises:
        ValueError: The block failed; what names the file already is raised as it is.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        if is_mistake(error) or (isinstance(error, ValueError) and str(path) in str(error)):
            raise
        raise ValueError(f"expected {expected} in {path} but: {str(error) or type(error).__name__}") from error


@contextmanager
def netcdf_arrays(path: Path, info: ModelInfo) -> Iterator[dict[str, Any]]:
    """Open a netCDF file: its variables, and its dimensions, in lower case where the model has that name.

    Values are unpacked, and NaN where the file says that they are missing. Times stay the numbers of the file.
    """
    taken, axes = {each.name for each in info.arguments}, {*(info.grid.axes if info.grid else ())}
    library, h5py = xarray(), hdf5()
    with named(path, "a netCDF file"):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as checked:
                check_heaps(path, checked)
        file = library.open_dataset(path, decode_times=False)
    with file:
        every = {*file.variables, *file.dims}
        lower = {name: str(name).lower() for name in every}
        data = file.rename({name: new for name, new in lower.items() if new in taken | axes and new not in every})
        yield {str(name): data[name] for name in data.variables if name in data.data_vars or name in taken}


def netcdf_bytes(outputs: Mapping[str, Any], tensors: Mapping[str, TensorInfo | ParameterInfo]) -> bytes:
    """Return a netCDF file of outputs with units and meaning; those that are labelled keep their coordinates."""
    return bytes(_dataset(outputs, tensors).to_netcdf(engine="h5netcdf"))


def new_variable(file: Any, variable: Any, chunks: tuple[int, ...]) -> Any:
    """Make a variable of a netCDF file as a dataset has it, but for its values, and return it to be written."""
    made = file.create_variable(variable.name, variable.dims, "float32", fillvalue=np.float32(np.nan), chunks=chunks)
    beside = " ".join(sorted(str(name) for name in variable.coords if name not in variable.dims))
    made.attrs.update(variable.attrs | ({"coordinates": beside} if beside else {}))
    return made


def frames_dataset(
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, TensorInfo],
    times: npt.NDArray[np.floating[Any]],
    labels: Labels | None,
) -> Any:
    """Return trajectories as a dataset of xarray, labelled like the state they start from, without their values.

    The times of the frames are a coordinate, as `_labels.with_times` calls it.

    Args:
        shapes: The shape of each output or column, `[(batch), frame, (component), *grid]`.
        tensors: What they are, with the axis of the frames.
        times: Those of the frames, where the state does not say its own.
        labels: Those of the state.
    """
    unwritten: dict[str, Any] = {name: np.broadcast_to(np.float32(np.nan), shape) for name, shape in shapes.items()}
    if labels is not None:
        unwritten = {name: labels.labelled(array, tensors[name]) for name, array in unwritten.items()}
    found, start = _dataset(unwritten, tensors), None if labels is None else labels.time
    first = next(iter(tensors.values()))
    frame = found[first.name].dims[first.axes.index(FRAME) - len(first.axes)]  # as a forcing calls it, with its times
    found = found.drop_vars([each for each in found.coords if frame in found[each].dims]).rename({frame: FRAME})
    return with_times(found, FRAME, times, start)


def _dataset(outputs: Mapping[str, Any], tensors: Mapping[str, TensorInfo | ParameterInfo]) -> Any:
    """Return outputs with units and meaning as a dataset of xarray."""
    library, made = xarray(), list[Any]()
    axes = {axis for tensor in tensors.values() for axis in tensor.axes}
    every = (dim for array in outputs.values() for dim in getattr(array, "dims", ()))
    batch = next((dim for dim in every if dim not in axes), "batch")  # as the inputs call it
    several = len({tensors[name].components for name in outputs if tensors[name].components}) > 1
    for name, array in outputs.items():
        tensor, labelled = tensors[name], array
        if not isinstance(array, library.DataArray):
            dims = [batch if axis == "batch" else axis for axis in tensor.axes[len(tensor.axes) - array.ndim :]]
            coords = {COMPONENT: list(tensor.components)} if tensor.components and COMPONENT in dims else {}
            labelled = library.DataArray(array, coords, dims, attrs=attributes_of(tensor))
        if several and COMPONENT in labelled.dims:  # a dimension of a file has one length, and one list of names
            labelled = labelled.rename({COMPONENT: f"{name}_{COMPONENT}"})
        made.append(labelled.drop_encoding().rename(name))
    found = library.merge(made, join="exact", compat="no_conflicts")
    found.attrs.clear()  # those of the first output
    return found


def matlab_arrays(path: Path, info: ModelInfo) -> dict[str, Any]:
    """Read the variables of a MATLAB file by name; a row or a column is the numbers of a parameter.

    Version 7.3 is HDF5, in which all axes are in reverse.
    """
    io = scipy_io()
    with named(path, "a MATLAB file"):
        version, _ = io.matlab.matfile_version(path)
        if version == 2:
            h5py = library("h5py", "MATLAB files of version 7.3 need h5py: pip install h5py")
            with h5py.File(path, "r") as file:
                check_heaps(path, file)
                found = {name: each[()].T for name, each in file.items() if isinstance(each, h5py.Dataset)}
        else:
            if version == 1:
                complex_variables(path)
            found = {name: each for name, each in io.loadmat(path).items() if not name.startswith("__")}
    numbers = {each.name for each in info.parameters if each.axes == ("batch",)}
    return {name: each.ravel() if name in numbers and 1 in each.shape else each for name, each in found.items()}
