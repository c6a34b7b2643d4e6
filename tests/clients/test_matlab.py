"""MATLAB files whose tags are damaged: SciPy alone would end the program, for the client and a training alike."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import io, sparse

from petrov_client import ModelInfo
from petrov_client import _files as files
from petrov_client._schema import TensorInfo
from training.data.readers import matlab, open_file
from training.data.readers.data_file import ReadError

TAGS = """
import sys, warnings
from importlib import import_module
from pathlib import Path
from scipy import io
warnings.simplefilter("ignore")
path, check, whole = Path(sys.argv[1]), import_module(sys.argv[2]).complex_variables, 0
content = path.read_bytes()
for place in range(128, len(content)):
    for value in (15, 64):
        damaged = path.with_name("damaged.mat")
        damaged.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        try:
            check(damaged)
            io.loadmat(damaged)
        except Exception:
            continue
        whole += 1
print(whole)
"""


def variables() -> dict[str, Any]:
    cells = np.empty((1, 2), object)
    cells[0, 0], cells[0, 1] = np.eye(2), "text"
    fields = {"x": np.arange(3.0), "inner": {"y": 1j}}
    matrix = sparse.csc_matrix(np.eye(3))
    return {"a": np.arange(6.0).reshape(2, 3), "z": np.array([1 + 2j]), "c": cells, "s": fields, "t": "ab", "m": matrix}


def test_no_damaged_tag_ends_the_program(tmp_path: Path) -> None:
    path = tmp_path / "whole.mat"
    io.savemat(path, variables())
    command = [sys.executable, "-c", TAGS, str(path), matlab.__name__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100  # damaged values are read


@pytest.mark.parametrize("compressed", [False, True])
def test_whole_files_are_let_through(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "whole.mat"
    io.savemat(path, variables() | {"large": np.random.default_rng(0).random(10**6)}, do_compression=compressed)
    assert matlab.complex_variables(path) == [name == "z" for name in (*variables(), "large")]


def test_files_of_matlab_itself_are_let_through() -> None:
    folder = Path(io.__file__).parent / "matlab" / "tests" / "data"
    read = 0
    for path in sorted(folder.glob("test*_[67]*.mat")):
        if io.matlab.matfile_version(path)[0] == 1:
            with warnings.catch_warnings(action="ignore"):
                names = [name for name, *_ in io.whosmat(path)]
            assert len(matlab.complex_variables(path)) == len(names)
            read += 1
    assert read > 40


def test_damage_is_named_by_client_and_training(tmp_path: Path) -> None:
    path, tensor = tmp_path / "field.mat", TensorInfo("a", ("batch", "x"), shape=(None, None))
    io.savemat(path, {"a": np.arange(6.0).reshape(2, 3)})
    content = path.read_bytes()
    assert content[176:180] == (9).to_bytes(4, "little")  # the type of the numbers
    path.write_bytes(content[:176] + bytes([15]) + content[177:])
    sentence = r"field\.mat.*in the variable 'a' at byte 128, expected an element of the types 1, .* but found 15\)?$"
    with pytest.raises(ReadError, match=sentence), open_file(path):
        pass
    with pytest.raises(ValueError, match=sentence), files.opened(path, ModelInfo("m", 1, (1,), (tensor,), (), 8)):
        pass
    io.savemat(path, {"a": np.arange(600.0)}, do_compression=True)
    path.write_bytes(path.read_bytes()[:-60])
    cut = r"field\.mat: expected a MATLAB file, but .* at byte 128, the compressed bytes are cut off"
    with pytest.raises(ReadError, match=cut), open_file(path):
        pass
