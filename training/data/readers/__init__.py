"""Readers of the files in which people keep simulations, one layout per file."""

from training.data.readers.beside import common_pattern
from training.data.readers.data_file import (
    MESHES,
    DataFile,
    LazyArray,
    ReadError,
    as_components,
    is_complex,
    natural,
    real_part,
)
from training.data.readers.formats import READERS, detect, meshes_in, named_in, open_file
from training.data.readers.layout import (
    arranged,
    as_column,
    in_order,
    last_axis_at,
    of_points_in_cells,
    side_by_side,
    unlike_samples,
)
from training.data.readers.sample_names import doubt_of_rows, naming, unlike_names
from training.data.readers.splits import (
    SPACE,
    are_splits,
    files_of_splits,
    folders_of_splits,
    last_name,
    roughness,
)
from training.data.readers.tensor_files import NUMBERS, counts_all, numbering, tells_apart

__all__ = [
    "MESHES",
    "NUMBERS",
    "READERS",
    "SPACE",
    "DataFile",
    "LazyArray",
    "ReadError",
    "are_splits",
    "arranged",
    "as_column",
    "as_components",
    "common_pattern",
    "counts_all",
    "detect",
    "doubt_of_rows",
    "files_of_splits",
    "folders_of_splits",
    "in_order",
    "is_complex",
    "last_axis_at",
    "last_name",
    "meshes_in",
    "named_in",
    "naming",
    "natural",
    "numbering",
    "of_points_in_cells",
    "open_file",
    "real_part",
    "roughness",
    "side_by_side",
    "tells_apart",
    "unlike_names",
    "unlike_samples",
]
