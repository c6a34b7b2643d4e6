"""Tables as programs write them: their encodings, comments above their names, and decimal commas."""

from __future__ import annotations

from pathlib import Path

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
