"""Make multiclass/shuttle.npz of Debian's r-cran-mlbench, reading R's file without running R or anything in it.

    apt-get download r-cran-mlbench && dpkg-deb -x r-cran-mlbench_*.deb unpacked
    python -m bench.rivals.shuttle_from_rda unpacked/usr/lib/R/site-library/mlbench/data/Shuttle.rda DATA_HOME

The file is R's serialisation of one data frame in big-endian binary (RDX2), packed by xz: nine columns of doubles and a
factor. Only what that needs is read; anything else ends in an error.
"""

import lzma
import struct
import sys
from pathlib import Path

import numpy as np

from bench.rivals.datasets import MULTICLASS_TABLES

_NIL, _SYMBOL, _PAIRS, _TEXT, _INTEGERS, _DOUBLES, _TEXTS, _LIST, _REFERENCE = 254, 1, 2, 9, 13, 14, 16, 19, 255


class _Reader:
    """R's objects as plain Python values; lists as (values, attributes)."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.symbols: list[str] = []

    def integer(self) -> int:
        self.at += 4
        return struct.unpack_from(">i", self.content, self.at - 4)[0]

    def array(self, count: int, kind: str) -> np.ndarray:
        found = np.frombuffer(self.content, kind, count, self.at)
        self.at += found.nbytes
        return found

    def item(self) -> object:
        flags = self.integer()
        kind, has_attributes, has_tag = flags & 255, bool(flags & 512), bool(flags & 1024)
        if kind == _NIL:
            return None
        if kind == _SYMBOL:
            self.symbols.append(str(self.item()))
            return self.symbols[-1]
        if kind == _REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == _PAIRS:
            if has_attributes:
                self.item()
            name = self.item() if has_tag else None
            value = self.item()
            return {str(name): value, **(self.item() or {})}  # type: ignore[dict-item]
        if kind == _TEXT:
            size = self.integer()
            self.at += max(size, 0)
            return None if size < 0 else self.content[self.at - size : self.at].decode("latin-1")
        if kind not in (_INTEGERS, _DOUBLES, _TEXTS, _LIST):
            raise SystemExit(f"an object of kind {kind} is not expected in this file")
        count = self.integer()
        if kind in (_INTEGERS, _DOUBLES):
            values: object = self.array(count, ">i4" if kind == _INTEGERS else ">f8")
        else:
            values = [self.item() for _ in range(count)]
        return (values, self.item()) if has_attributes else (values, {})


def main() -> None:
    """Read, check, write."""
    source, home = sys.argv[1:]
    content = lzma.decompress(Path(source).read_bytes())
    if not content.startswith(b"RDX2\nX\n"):
        raise SystemExit(f"{source} must be R's RDX2 in big-endian binary")
    reader = _Reader(content)
    reader.at = len(b"RDX2\nX\n") + 12  # the versions of the format and of R
    columns, attributes = reader.item()["Shuttle"]  # type: ignore[index]
    *numbers, (codes, factor) = columns
    levels, table = factor["levels"][0], MULTICLASS_TABLES["shuttle"]
    X = np.column_stack([values for values, _ in numbers]).astype(np.float64)
    # R names the classes; the numbers of NASA's file are their places.
    print("classes", levels, "columns", attributes["names"][0], "rows", X.shape, np.bincount(codes)[1:])
    place = {label: number for number, label in enumerate(table.classes)}
    y = np.array([place[str(code)] for code in codes], dtype=np.int64)
    folder = Path(home) / "multiclass"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "shuttle.npz", X=X, y=y)


if __name__ == "__main__":
    main()
