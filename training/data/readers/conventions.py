"""Attributes of netCDF and zarr by which numbers are decoded: packing, missing values, bounds, and units of time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from numpy.typing import NDArray

from training.data.readers.data_file import damage_named
from training.data.readers.hdf5 import PACKING, packing, text

if TYPE_CHECKING:
    import zarr

SECONDS = {
    **dict.fromkeys(("microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "msecs", "ms"), 1e-3),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), 1.0),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), 60.0),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), 3600.0),
    **dict.fromkeys(("day", "days", "d"), 86400.0),
}
"""The units in which netCDF counts dates, and xarray durations, in seconds. Files of one set may have several."""
DECODERS = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
AS_STORED: dict[str, Any] = dict.fromkeys(DECODERS, False)
"""How xarray opens files without decoding them; `decode_cf=False` does not reach groups."""
MOST_NAMED = 3  # arrays of one sentence


def decoded(path: Path, kind: str, stored: xarray.Dataset) -> tuple[xarray.Dataset, dict[str, str]]:
    """Return variables as stored with their packing undone, and why some are left out.

    xarray fails on packing that is a text, and on several numbers, at the first read or for the whole file.
    """
    data, left_out = stored.copy(), dict[str, str]()
    for name, value in stored.variables.items():
        scaling, fault = packing(value.attrs)
        if fault:
            left_out[str(name)] = fault
        for key in {*PACKING} & value.attrs.keys():
            if key not in scaling:
                del data.variables[name].attrs[key]
            elif np.asarray(value.attrs[key]).dtype.kind not in "fiu":
                data.variables[name].attrs[key] = scaling[key]
    with damage_named(path, kind):
        return xarray.decode_cf(data.drop_vars([*left_out]), decode_times=False), left_out


def bounds(data: xarray.Dataset) -> dict[str, str]:
    """Return the variables that hold the ends of the cells of others, by their names, and why they are no fields."""
    said = ((text(value.attrs.get("bounds")), name) for name, value in data.variables.items())
    return {each: f"it holds the bounds of {name}" for each, name in said if each in data.variables and each != name}


def without_default_fills(groups: Mapping[str, xarray.Dataset], arrays: Mapping[str, zarr.Array[Any]]) -> list[str]:
    """Let variables as stored in zarr 2 have missing values where they say so, and return a sentence about others.

    xarray takes the fill value for a missing one, as its own stores of that version have it. That of others is 0 unless
    their writers say otherwise, and reads as NaN then.
    """
    found = []
    for group, data in groups.items():
        for name, value in data.variables.items():
            one = arrays.get(label := f"{group}/{name}".strip("/"))
            if one is None or one.metadata.zarr_format != 2 or one.dtype.kind not in "fiub":
                continue
            if isinstance(said := one.attrs.get("_FillValue"), int | float):
                value.attrs["_FillValue"] = said
            elif one.fill_value == 0 and not {*PACKING} & {*one.attrs}:
                value.attrs.pop("_FillValue", None)
                found += [label] if name in data.data_vars else []
    if not found:
        return []
    listed = ", ".join(found[:MOST_NAMED]) + " and others" * (len(found) > MOST_NAMED)
    return [f"0 is the fill value of {listed} by default, and is a value here: save NaN where one is missing"]


def in_seconds(value: xarray.DataArray) -> NDArray[Any]:
    """Return the values of a coordinate; dates as seconds since the first of them, and durations as seconds."""
    values = np.asarray(value)
    if not counts_time(value) or values.dtype.kind not in "fiu":
        return values
    unit, *since = unit_words(value)
    return np.asarray((values - (values[:1] if since else 0)) * SECONDS[unit], np.float64)


def counts_time(value: xarray.DataArray) -> bool:
    """Return whether a coordinate holds dates, `hours since 2000-01-01`, or durations that xarray has written."""
    unit, *since = [*unit_words(value), ""]
    durations = text(value.attrs.get("dtype")).startswith("timedelta64")
    return unit in SECONDS and (since[0] == "since" or durations)


def unit_words(value: xarray.DataArray) -> list[str]:
    """Return the words of the units of a coordinate."""
    return text(value.attrs.get("units")).lower().split()
