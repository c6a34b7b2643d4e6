"""Names of dimensions in netCDF and zarr, and what they say: which count samples, frames in time, or components."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import xarray

SAMPLE = frozenset(
    {"sample", "samples", "n_samples", "num_samples", "nsamples", "sample_id", "batch", "case", "cases", "run", "runs"}
    | {"realization", "realizations", "realisation", "realisations", "trajectory", "trajectories", "seed", "seeds"}
    | {"ensemble", "ens", "member", "members", "member_id", "simulation", "simulations", "sim", "sims"}
)
TIME = ("time", "t", "valid_time", "ocean_time", "time_counter")  # the last ones of ERA5, ROMS and NEMO
# Of forecasts: what counts their starts, or else time does, and the time since then; and what counts their members.
INITIAL = ("init_time", "initial_time", "initialization_time", "forecast_reference_time", "reference_time", "init")
LEAD = ("lead_time", "leadtime", "lead", "step", "prediction_timedelta", "forecast_period", "forecast_hour")
MEMBERS = SAMPLE | {"number"}
COMPONENT = frozenset(
    {"component", "components", "channel", "channels", "variable", "variables", "feature", "features", "var", "vars"}
)
KEPT = {*MEMBERS, *TIME, *INITIAL, *LEAD, *COMPONENT}
"""Names of dimensions that are no axes of a grid, however few points they have."""


def axis(dimension: str, leads: Collection[str | None] = (), components: Collection[str] = ()) -> str:
    """Return `time` or `component` for the names these go by, and any other name as it is."""
    lower = dimension.lower()
    if lower in TIME or dimension in leads:
        return "time"
    return "component" if lower in COMPONENT or dimension in components else dimension


def components_of(value: xarray.DataArray) -> list[str]:
    """Return the dimensions of a variable that count its components: by their names, or by a name for each of them.

    What xarray stacks with `to_dataarray` has the names of the variables along a dimension, which is no axis of a grid.
    """
    sample = sample_dimension(value)
    named = {str(dim) for dim in value.dims if str(dim) in value.coords and holds_text(value.coords[dim])}
    return [dim for dim in map(str, value.dims) if dim != sample and (dim.lower() in COMPONENT or dim in named)]


def holds_text(value: xarray.DataArray) -> bool:
    """Return whether a coordinate holds names."""
    return value.dtype.kind in "US" or (
        value.dtype.kind == "O" and all(isinstance(each, str) for each in np.ravel(value.values))
    )


def sample_dimension(value: xarray.DataArray) -> str | None:
    """Return the dimension of a variable that counts samples; None where it has no dimensions."""
    dims = list(map(str, value.dims))
    known = (*SAMPLE, *INITIAL, *((*MEMBERS, *TIME) if lead_dimension(value) else ()))
    return next((dim for dim in dims if dim.lower() in known), dims[0] if dims else None)


def starts_of(value: xarray.DataArray) -> list[str]:
    """Return the dimensions of a variable that may count forecasts: samples, starts, or time."""
    return [str(dim) for dim in value.dims if str(dim).lower() in {*MEMBERS, *INITIAL, *TIME}]


def lead_dimension(value: xarray.DataArray) -> str | None:
    """Return the dimension of a forecast's variable that is the time since its start; None where there is none.

    Where only samples are counted, it is one that follows them and has a grid behind it: elsewhere `step` may be an
    axis, or count iterations. Of frames in time of several runs it is none.
    """
    dims = list(map(str, value.dims))
    starts = starts_of(value)
    found = next((dim for dim in dims if dim.lower() in LEAD), None)
    if not starts or found is None:
        return None
    counted, frames = ({dim for dim in starts if dim.lower() in known} for known in (SAMPLE, TIME))
    if counted and frames and found.lower() == "step":
        return None
    follows = dims.index(found) == len(starts) < len(dims) - 1
    return found if counted < {*starts} or follows else None


def two_counts(value: xarray.DataArray) -> str:
    """Say that two dimensions count samples, as starts and members of a forecast do; empty where one of them does."""
    found = starts_of(value)
    if lead_dimension(value) is None:
        found = [dim for dim in found if dim.lower() in SAMPLE]
    if len(found) < 2:
        return ""
    stacked = f"ds.stack(sample={found}).reset_index('sample').transpose('sample', ...)"
    return f"{' and '.join(found)} both count samples: make them one dimension, {stacked}"
