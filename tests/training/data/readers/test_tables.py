"""Tables as programs write them: their encodings, comments above their names, and decimal commas."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from training.data.readers import ReadError, open_file

TABLE = "x (m)\ty (m)\tT (°C)\n0\t0\t300\n1\t2\t301\n"
COMSOL = "% Model,plaque é.mph\n% Dimension,2\n% x,y,T (°C)\n0,0,300\n1,2,301\n"
CORNERS = [[[0, 0], [1, 2]]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", TABLE), ("a.txt", TABLE), ("a.dat", TABLE), ("b.csv", COMSOL), ("b.txt", COMSOL)],
)
def test_a_table_is_read_in_the_encoding_of_its_program(name: str, content: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode(encoding))
    with open_file(tmp_path / name) as file:
        np.testing.assert_array_equal(file.array("coordinates").read(), CORNERS)
        np.testing.assert_array_equal(file.array("T").read(), [[300, 301]])
        assert file.array("T").units == "°C"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_is_read_in_the_encoding_of_windows(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"nu": [1, 2]}', encoding=encoding)
    with open_file(tmp_path / "a.json") as file:
        assert file.array("nu").read().tolist() == [1, 2]


def test_a_letter_far_down_decides_the_encoding_of_a_table(tmp_path: Path) -> None:
    lines = ["a,note", *["1,plain"] * 20_000, "2,caf\xe9"]
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode("cp1252"))
    with open_file(tmp_path / "a.csv") as file:
        assert file.array("a").read().sum() == 20_002


def test_a_section_without_lines_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("[Name]\nPlane 1\n[Data]\n")
    with pytest.raises(ReadError, match="expected one of the formats"), open_file(tmp_path / "a.txt"):
        pass


def test_bytes_are_no_table(tmp_path: Path) -> None:
    for name, sentence in {"a.csv": "it holds bytes of 0", "a.raw": "bytes of a layout that no file says"}.items():
        (tmp_path / name).write_bytes(np.arange(99.0).tobytes())
        with pytest.raises(ReadError, match=rf"{name}.*{sentence}"), open_file(tmp_path / name):
            pass


@pytest.mark.parametrize(
    "lines",
    [
        "# made by solver 3.1\nx,y,T\n0,0,300\n1,2,301",
        "# made by solver 3.1\n# 12 May, at noon\nx,y,T\n0,0,300\n1,2,301",
        "# made by solver 3.1\n# x,y,T\n0,0,300\n1,2,301",
        "#x,y,T,part\n0,0,300,steel\n1,2,301,air",
        "# run of sodium\nx,y,T,Na\n0,0,300,5\n1,2,301,5",
    ],
)
def test_a_comment_names_columns_where_numbers_are_below_it(lines: str, tmp_path: Path) -> None:
    # A line of words and numbers does not make a table of a file with another suffix.
    for name in ("a.csv",) if "steel" in lines else ("a.csv", "a.txt"):
        (tmp_path / name).write_text(lines)
        with open_file(tmp_path / name) as file:
            assert {*file.arrays} == {"coordinates", "T"} | ({"Na"} if "Na" in lines else set())
            np.testing.assert_array_equal(file.array("T").read(), [[300, 301]])


def test_a_first_line_of_missing_values_is_no_line_of_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# a,b\nNA,NA\n1,2\n")
    with open_file(tmp_path / "a.csv") as file:
        np.testing.assert_array_equal(file.array("b").read(), [np.nan, 2])


ROWS = np.random.default_rng(0).standard_normal((5, 40))


@pytest.mark.parametrize(
    ("names", "sides"),
    [
        ([f"u_{number}" for number in range(40)], (40,)),
        ([f"u{number}" for number in range(1, 41)], (40,)),
        ([f"u[{row},{column}]" for row in range(4) for column in range(10)], (4, 10)),
    ],
)
def test_many_columns_of_one_name_are_the_points_of_a_field(
    names: list[str], sides: tuple[int, ...], tmp_path: Path
) -> None:
    order = [20, *range(20), *range(21, 40)]  # as a dictionary may have them
    lines = [[f'"{names[at]}"' for at in order], *([repr(float(row[at])) for at in order] for row in ROWS)]
    text = "\n".join(",".join(["nu [m^2/s]" if number == 0 else "1e-3", *line]) for number, line in enumerate(lines))
    (tmp_path / "a.csv").write_text(text)
    with open_file(tmp_path / "a.csv") as file:
        assert {*file.arrays} == {"nu", "u"}
        np.testing.assert_array_equal(file.array("u").read(), ROWS.reshape(5, *sides))
        np.testing.assert_array_equal(file.array(names[7]).read(), ROWS[:, 7])  # as problem files may name it


@pytest.mark.parametrize(
    "names", [[f"u_{number}" for number in range(16)], [f"u_{number}" for number in range(3, 23)], ["u_0_0", "u_1"] * 9]
)
def test_few_columns_and_those_that_fill_no_grid_are_numbers_of_their_own(names: list[str], tmp_path: Path) -> None:
    names = [*dict.fromkeys(names)]
    (tmp_path / "a.csv").write_text("\n".join((",".join(names), *[",".join("1" * len(names))] * 2)))
    with open_file(tmp_path / "a.csv") as file:
        assert [*file.arrays] == names


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize("header", ["", "numbers", "index"])
def test_a_table_of_numbers_alone_is_an_array(name: str, header: str, tmp_path: Path) -> None:
    mark = "," if name == "a.csv" else " "
    lines = [mark.join(map(repr, map(float, row))) for row in ROWS]
    if header == "index":
        lines = [f"{number}{mark}{line}" for number, line in enumerate(lines)]
    if header:
        lines = [mark.join(["", *map(str, range(40))][header == "numbers" :]), *lines]
    if header == "index" and mark == " ":
        return  # which no spaces tell
    (tmp_path / name).write_text("\n".join(lines))
    with open_file(tmp_path / name) as file:
        np.testing.assert_array_equal(file.array("array").read(), ROWS)


def test_a_table_of_pandas_in_hdf5_is_named(tmp_path: Path) -> None:
    """Its columns of one type are a block, which was a field."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["PYTABLES_FORMAT_VERSION"] = "2.1"
        file["df/block0_values"], file["df/axis1"] = ROWS, np.arange(5)
        file["df"].attrs["pandas_type"] = "frame"
    with pytest.raises(ReadError, match=r"found a table of pandas, .* to_parquet"), open_file(tmp_path / "a.h5"):
        pass


def test_a_line_of_coordinates_is_no_sample(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.csv", [np.linspace(0, 1, 40), *ROWS], delimiter=",")
    with pytest.raises(ReadError, match="expected a line of names"), open_file(tmp_path / "a.csv"):
        pass


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.txt", "a\tb\n0,5\t1,5\n-2,25\t1\n"),
        ("a.csv", "a\tb\n0,5\t1,5\n-2,25\t1\n"),
        ("a.txt", "a b\n0,5 1,5\n-2,25 1\n"),
        ("a.dat", "# a b\n0,5 1,5\n-2,25 1\n"),
        ("a.txt", "a;b\n0,5;1,5\n-2,25;1\n"),
    ],
)
def test_commas_that_can_only_be_decimal_ones_are(name: str, lines: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(lines)
    with open_file(tmp_path / name) as file:
        assert file.array("a").read().tolist() == [0.5, -2.25]
        assert file.array("b").read().tolist() == [1.5, 1]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.txt", "a\tb\n2,500\t0\n7,125\t1\n"),
        ("a.csv", "a\tb\n2,500\t0\n0.5\t1\n"),
        ("a.csv", 'a,b\n"2,500",0\n"7,5",1\n'),
    ],
)
def test_commas_that_may_group_thousands_or_part_two_numbers_are_named(name: str, lines: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(lines)
    with open_file(tmp_path / name) as file:
        assert {*file.arrays} == {"b"}
        assert "the comma of 2,500 may be a decimal one" in file.left_out["a"]


def test_decimal_commas_between_commas_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n0,5,1,5\n")
    with (
        pytest.raises(ReadError, match=r"found 4 in line 1 .*where commas are decimal ones, separate the columns"),
        open_file(tmp_path / "a.csv"),
    ):
        pass
