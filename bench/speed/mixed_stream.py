"""Time and memory of `crcen fit --engine stream` on a mixed table, as CSV and as Parquet, at two sizes.

python -m bench.speed.mixed_stream [--rows 200000 2000000] [--text]

The table is that of `bench.speed.tables`: 25 columns of every kind, without its text column unless ``--text`` is
given. It is written in pieces, so that this process stays small. Each command runs in a process of its own; memory is
its largest resident set, libraries included.
"""

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.speed.tables import mixed_table, run

PIECE = 100_000


def write(folder: Path, n: int, seed: int) -> list[Path]:
    """The same rows as one CSV and one Parquet file."""
    text, parquet = folder / f"rows-{n}.csv", folder / f"rows-{n}.parquet"
    writer = None
    for start in range(0, n, PIECE):
        frame = mixed_table(min(PIECE, n - start), seed + start)
        frame["id"] += start
        frame.to_csv(text, index=False, mode="w" if start == 0 else "a", header=start == 0)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(parquet, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return [text, parquet]


def main() -> None:
    """Make the tables, run the commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--text", action="store_true")
    options = parser.parse_args()
    left_out = [] if options.text else ["--drop", "note"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.crcen"
        run("start of the program", "--version")
        for n in options.rows:
            for data in write(folder, n, 1):
                what = f"{n:,} rows, {data.suffix[1:]}, {data.stat().st_size / 1e6:,.0f} MB"
                how = ["--target", "fraud", "--engine", "stream", "--epochs", 2, *left_out, "--out", model]
                run(what, "fit", data, *how)
                data.unlink()
        test = folder / "test.csv"
        mixed_table(20_000, 9).to_csv(test, index=False)
        run("evaluate 20,000 other rows", "evaluate", model, test)


if __name__ == "__main__":
    main()
