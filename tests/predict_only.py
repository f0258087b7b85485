"""`pip install crcen` is enough to predict: run by `make test-predict`.

With ``--fit FOLDER`` fit and score a small mixed table; with ``FOLDER`` alone, in an environment without torch and
LightGBM, check that the same model gives the same rows, and that a fit names the extra that is missing.
"""

import subprocess
import sys
import time
from pathlib import Path

from smoke import mixed_table


def command(*arguments, fails=False):
    """Run `crcen`; its output."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "crcen", *map(str, arguments)], capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    print(f"crcen {arguments[0]}: {time.perf_counter() - start:.1f} s")
    return done.stdout + done.stderr


def main():
    """Fit or check."""
    folder = Path(sys.argv[-1])
    model, rows, scored = folder / "model.crcen", folder / "rows.csv", folder / "scored.csv"
    if "--fit" in sys.argv:
        folder.mkdir(parents=True, exist_ok=True)
        mixed_table(400, 0).to_csv(rows, index=False)
        command("fit", rows, "--target", "fraud", "--budget", "5", "--time-limit", "20", "--out", model)
        command("predict", model, rows, "--out", scored)
        return
    for name in ("torch", "lightgbm", "catboost"):
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
        raise AssertionError(f"{name} is installed here, so nothing is tested")
    again = folder / "again.csv"
    command("predict", model, rows, "--out", again)
    assert again.read_text() == scored.read_text()
    command("evaluate", model, rows)
    command("report", model, rows, "--out", folder / "report.html")
    assert "crcen[train]" in command("fit", rows, "--target", "fraud", "--out", folder / "no.crcen", fails=True)
    size = sum(path.stat().st_size for path in Path(sys.prefix).rglob("*") if path.is_file() and not path.is_symlink())
    print(f"predicted without torch and LightGBM; the environment has {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
