"""Reading a 100 MB CSV file: crcen compared with pandas, Polars, PyArrow and DuckDB, each in a separate process.

Prints medians of the repetitions: seconds, processor seconds (which other work on the machine changes little),
megabytes per second and peak memory. Run: python -m bench.speed.reading
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

READERS = {
    "crcen, whole": "from crcen.tables.reading import open_table; frame = open_table(path).read()",
    "crcen, chunks": "from crcen.tables.reading import open_table; n = sum(map(len, open_table(path).chunks()))",
    "pandas, strings": "import pandas as pd; frame = pd.read_csv(path, dtype=str)",
    "pandas": "import pandas as pd; frame = pd.read_csv(path)",
    "polars": "import polars as pl; frame = pl.read_csv(path)",
    "pyarrow": "import pyarrow.csv as pc; frame = pc.read_csv(path)",
    "duckdb": "import duckdb; frame = duckdb.sql(f\"select * from read_csv('{path}')\").to_arrow_table()",
    "duckdb, strings": "import duckdb; "
    "frame = duckdb.sql(f\"select * from read_csv('{path}', all_varchar=true)\").to_arrow_table()",
}
CHILD = """
import resource, sys, time
path = sys.argv[1]
{imports}
start, processors = time.perf_counter(), time.process_time()
{work}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - start, time.process_time() - processors, peak)
"""


def write_table(path: Path, megabytes: int) -> None:
    """Numbers, whole numbers, categories, dates, free text and gaps."""
    rng, n, header = np.random.default_rng(0), 50_000, True
    while not path.exists() or path.stat().st_size < megabytes * 10**6:
        frame = pd.DataFrame({f"x{j}": np.round(rng.normal(size=n), 5) for j in range(8)})
        frame["amount"] = np.round(rng.lognormal(5, 2, n), 2)
        frame["code"] = rng.integers(0, 10**6, n)
        frame["kind"] = rng.choice(["house", "car", "boat", "other"], n)
        frame["town"] = rng.choice([f"town {i}" for i in range(200)], n)
        frame["when"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**7, n), unit="s")).astype(str)
        frame["gap"] = np.where(rng.random(n) < 0.2, "", frame["x0"].astype(str))
        frame["y"] = (rng.random(n) < 0.02).astype(int)
        frame.to_csv(path, index=False, mode="a", header=header)
        header = False


def measure(name: str, path: Path) -> tuple[float, ...]:
    """Seconds, processor seconds and peak megabytes of one reader in a new process; imports are not counted."""
    imports, _, work = READERS[name].partition("; ")
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(imports=imports, work=work), str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(map(float, done.stdout.split()[-3:]))  # DuckDB shows its progress before


def main() -> None:
    """Write the file, run every reader in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, options.megabytes)
        size = path.stat().st_size / 1e6
        found: dict[str, list[tuple[float, ...]]] = {name: [] for name in READERS}
        start = time.perf_counter()
        for _ in range(options.repeats):
            for name, results in found.items():
                results.append(measure(name, path))
        print(f"{size:.0f} MB, median of {options.repeats} runs in {time.perf_counter() - start:.0f} s")
        for name, results in found.items():
            seconds, processors, peak = map(statistics.median, zip(*results, strict=True))
            rate = f"{seconds:6.2f} s {processors:6.2f} s of processors {size / seconds:7.0f} MB/s"
            print(f"{name:<16} {rate} {peak:7.0f} MiB at most")


if __name__ == "__main__":
    main()
