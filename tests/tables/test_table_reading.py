"""Files as people have them: encodings, separators, compressions, and everything that is wrong with them."""

import csv
import gzip
import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crcen import InvalidInput, ReadOptions
from crcen.exceptions import DataUnavailable
from crcen.tables import text as text_format
from crcen.tables.reading import open_table

ROWS = "name;amount\nZoë;1,5\nÅse;-2,25\nJosé;3\n"


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_encoding_gives_the_same_table(tmp_path, encoding, newline):
    table = open_table(written(tmp_path / "a.csv", ROWS.replace("\n", newline).encode(encoding)))
    frame = table.read()
    assert table.columns == ("name", "amount")
    assert frame["name"].tolist() == ["Zoë", "Åse", "José"]
    assert frame["amount"].astype(float).tolist() == [1.5, -2.25, 3.0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt", "a"])
def test_every_separator_is_found_whatever_the_name(tmp_path, separator, name):
    text = 'a,b,c\n1,"x, y; z",3.5\n2,plain,4.5\n'
    text = text if separator == "," else text.replace(",", separator).replace(f"x{separator} y", "x, y")
    frame = open_table(written(tmp_path / name, text)).read()
    assert frame.columns.tolist() == ["a", "b", "c"]
    assert frame["c"].tolist() == ["3.5", "4.5"]
    assert frame["b"].iloc[1] == "plain"


@pytest.mark.parametrize("n_rows", [sys.maxsize, 1000])
@pytest.mark.parametrize("separator", [",", "::"])
def test_one_latin_byte_in_the_last_row_is_enough(tmp_path, separator, n_rows):
    """Beyond the lines that are read for detection, in a block after those that were given already."""
    text = f"a{separator}b\n" + f"1{separator}plain\n" * 800_000 + f"2{separator}Zürich\n"
    table = open_table(written(tmp_path / "a.csv", text.encode("latin-1")), ReadOptions(separator=separator))
    assert table.n_rows == pytest.approx(800_001, rel=0.01)
    assert table.notes == []
    assert sum(map(len, table.chunks(n_rows))) == 800_001
    assert list(table.chunks(n_rows))[-1]["b"].iloc[-1] == "Zürich"
    assert table.notes == ["a.csv is not UTF-8 and was read as Windows-1252"]
    with pytest.raises(InvalidInput, match="is not written in utf-8"):
        open_table(tmp_path / "a.csv", ReadOptions(separator=separator, encoding="utf-8")).read()


def test_rows_of_two_encodings(tmp_path):
    rows = b"a,b\n" + "1,Malmö\n".encode() * 800_000 + "2,Zürich\n".encode("latin-1")
    table = open_table(written(tmp_path / "a.csv", rows))
    with pytest.raises(InvalidInput, match="mixes UTF-8 with another encoding; state encoding=windows-1252"):
        list(table.chunks(1000))
    stated = open_table(tmp_path / "a.csv", ReadOptions(encoding="windows-1252"))
    assert set(next(stated.chunks(1000))["b"]) == {"MalmÃ¶"}


def test_missing_values_are_missing_and_codes_stay_text(tmp_path):
    frame = open_table(written(tmp_path / "a.csv", "code,x\n007,?\n,NA\nA1,2\n")).read()
    assert frame["code"].iloc[[0, 2]].tolist() == ["007", "A1"]
    assert frame.isna().to_numpy().tolist() == [[False, True], [True, True], [False, False]]


@pytest.mark.parametrize("around", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_compressed_files_and_chunks(tmp_path, kind, around):
    frame = pd.DataFrame({"n": range(1000), "t": [f"t{i}" for i in range(1000)]})
    plain = tmp_path / f"a{kind}"
    frame.to_csv(plain, index=False) if kind == ".csv" else frame.to_parquet(plain)
    content = plain.read_bytes()
    packed = {"": content, ".gz": gzip.compress(content), ".zst": zstd(content)}[around]
    table = open_table(written(tmp_path / f"a{kind}{around}", packed))
    assert abs(table.n_rows - 1000) <= 1
    pieces = list(table.chunks(300))
    assert [len(piece) for piece in pieces] == [300, 300, 300, 100]
    together = pd.concat(pieces, ignore_index=True)
    assert together["n"].astype(int).tolist() == list(range(1000))
    assert together["t"].tolist() == table.read()["t"].tolist() == frame["t"].tolist()


@pytest.mark.parametrize(
    ("name", "content", "error", "sentence"),
    [
        ("a.csv", b"", DataUnavailable, "is empty"),
        ("a.csv", b" \n\n", DataUnavailable, "is empty"),
        ("a.parquet", b"", DataUnavailable, "is empty"),
        ("a.csv", b"a,b,a\n1,2,3\n", InvalidInput, "duplicate column name"),
        ("a.csv", b"1,2.5,3\n4,5,6\n", InvalidInput, "must hold column names: got the numbers 1, 2.5, 3"),
        ("a.csv", b"a,b\n1,2,3\n4,5,6\n", InvalidInput, "2 column names over rows of 3 values"),
        ("a.csv", b"a,b\n1,2\n4,5,6\n1,2\n", InvalidInput, "line 3 of"),
        ("a.csv", b"a,b\n1,2,3\n4,5\n1,2\n", InvalidInput, "has 3 values under 2 column names"),
        ("a.csv", b"a,b,c\n1,2,3\n1,2\n1,2,3\n", InvalidInput, "has 2 values under 3 column names"),
        ("a.csv", b'a,b\n1,"2\n3,4\n', InvalidInput, "a closing quote is missing"),
        ("a.csv", b"a,b,c\n1,2,3\n4,5", DataUnavailable, "ends in the middle of its last row"),
        ("a.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 999, mtime=0)[:40], DataUnavailable, "truncated"),
        ("a.csv.zst", zstd(b"a,b\n" + b"1,2\n" * 999)[:20], DataUnavailable, "truncated"),
        ("a.parquet", b"PAR1 and then nothing", DataUnavailable, "truncated or altered"),
        ("a.ods", b"PK\x03\x04", DataUnavailable, "cannot be read as an Excel workbook"),
        ("a.csv", bytes(range(256)) * 9, InvalidInput, "is not a text table"),
    ],
)
def test_what_is_no_table_gets_one_sentence(tmp_path, name, content, error, sentence):
    path = written(tmp_path / name, content)
    with pytest.raises(error) as caught:
        open_table(path).read()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_header_lines_of_any_length(tmp_path):
    names = [f"a gene with a long name {i}" for i in range(20_000)]  # half a megabyte
    rows = [",".join(names), ",".join(["1"] * 20_000), ",".join(["2"] * 20_000)]
    table = open_table(written(tmp_path / "a.csv", "\n".join(rows)))
    assert list(table.columns) == names
    assert table.read().iloc[:, -1].tolist() == ["1", "2"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
@pytest.mark.parametrize(("bad", "width"), [("x", 1), ("x,é", 2), ("x,y,z,v", 4), ('x,"y,z",v,w', 4)])
@pytest.mark.parametrize("position", [1, 40])
def test_a_row_of_another_width_is_found_wherever_it_stands(
    tmp_path, monkeypatch, newline, encoding, bad, width, position
):
    """Among blank lines, quoted separators and line ends, and quotation marks inside of values."""
    monkeypatch.setattr(text_format, "_SCAN_BYTES", 7)
    monkeypatch.setattr(text_format, "_SAMPLE_BYTES", 64)
    good = ["1,2,3", '1,"2, ""quoted""",é', '1,"two\nlines",3', "", "  ", '1,5" pipe,3', "1,,"]
    rows = ["a,b,c", *(good[i % 7] for i in range(40))]
    expected = csv.reader(io.StringIO("\n".join(rows), newline=None))
    n_rows = sum(bool("".join(row).strip()) for row in expected) - 1

    table = open_table(
        written(tmp_path / "a.csv", newline.join(rows).replace("two\n", f"two{newline}").encode(encoding))
    )
    frame = table.numbered()
    assert (len(frame), frame.index.name) == (n_rows, "row")

    line = 1 + "\n".join(rows[:position]).count("\n") + 1
    rows.insert(position, bad)
    text = newline.join([*rows, ""]).replace("two\n", f"two{newline}")
    with pytest.raises(InvalidInput, match=f"line {line} of .* has {width} values? under 3 column names"):
        open_table(written(tmp_path / "a.csv", text.encode(encoding))).read()


def test_types_truncation_and_double_names_of_parquet_files(tmp_path):
    for path, words in ((tmp_path, "no file at"), (tmp_path / "a.parquet", r"is not there; check the name\.$")):
        with pytest.raises(DataUnavailable, match=words):
            open_table(path)
    when = pd.date_range("2024-01-01", periods=3)
    frame = pd.DataFrame({"when": when, "yes": [True, False, True], "x": [1.5, np.nan, 2.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(open_table(tmp_path / "a.parquet").read(), frame, check_dtype=False)
    pq.write_table(pa.table({"a": list(range(9999))}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(DataUnavailable, match="truncated or altered"):
        open_table(written(tmp_path / "a.parquet", content[: len(content) // 2]))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=r"duplicate column name in .*: a"):
        open_table(tmp_path / "a.parquet")


def test_a_file_and_a_folder_without_permission(closed_folder):
    for path in (closed_folder / "open" / "closed.csv", closed_folder / "closed" / "open.csv"):
        with pytest.raises(DataUnavailable, match="no permission; ask its owner"):
            open_table(path)


@pytest.mark.parametrize(
    "remark", ["sep=;", "# made by export 3.1, unit: EUR", "Report of May\n", "Report of May;;\n;;"]
)
def test_titles_and_remarks_above_the_names_are_skipped_and_reported(tmp_path, remark):
    table = open_table(written(tmp_path / "a.csv", f"{remark}\na;b;c\n1;x;3\n2;y;4\n"))
    assert table.columns == ("a", "b", "c")
    assert table.read()["c"].tolist() == ["3", "4"]
    assert f"skipped as titles ({remark.strip().split(chr(10))[0].rstrip(';')[:40]!r})" in table.notes[0]
    same = open_table(tmp_path / "a.csv", ReadOptions(skip_rows=remark.count("\n") + 1))
    assert same.read().equals(table.read())


@pytest.mark.parametrize(
    ("text", "columns", "n_rows"),
    [
        ("a,b\n", ("a", "b"), 0),
        (",y\na,b\nc,d\n", ("column_1", "y"), 2),
        ("name,\na,b\nc,d\n", ("name", "column_2"), 2),
        (",column_1,x,\n0,7,1,a\n", ("column_1_", "column_1", "x", "column_4"), 1),
        ("#,b,c\n1,2,3\n", ("#", "b", "c"), 1),
        ("#chrom\tpos\n1\t2\n", ("#chrom", "pos"), 1),
        ("a,b\n1," + "x" * 300_000 + "\n2,y\n", ("a", "b"), 2),
    ],
    ids=["header alone", "no first name", "no last name", "names taken", "hash", "name with hash", "long cell"],
)
def test_a_first_row_that_is_no_title_holds_the_names(tmp_path, text, columns, n_rows):
    table = open_table(written(tmp_path / "a.csv", text))
    assert (table.columns, len(table.read())) == (columns, n_rows)
