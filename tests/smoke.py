"""A short run of every part, in a minute, with the lowest versions allowed or another Python.

    make test-lowest
    make smoke-python
    make test-predict   # with --fit FOLDER, then with --predict FOLDER where torch and LightGBM are not installed

Prints the versions it ran with, then a line for each part. It needs the extras of `make test-lowest`.
"""

import contextlib
import io
import re
import sys
import tempfile
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np


def versions() -> None:
    """Print every installed version that the package states a bound for."""
    stated = [re.match(r"[A-Za-z0-9_.-]+", line) for line in metadata.requires("crcen") or []]
    names = sorted({found.group().lower() for found in stated if found})
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            print(f"  {name} {metadata.version(name)}")


def mixed_table(n: int, seed: int) -> "object":
    """Numbers with gaps, categories, truth values, dates and texts; what is rare depends on the first two."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    amount, country = rng.gamma(2.0, 50.0, n), rng.choice(["NL", "NO", "DE"], n)
    p = 1 / (1 + np.exp(3.5 - amount / 60 - (country == "NO")))
    days = pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    return pd.DataFrame(
        {
            "amount": np.where(rng.random(n) < 0.1, np.nan, amount.round(2)),
            "country": country,
            "new": rng.random(n) < 0.3,
            "day": (pd.Timestamp("2024-01-01") + days).strftime("%Y-%m-%d"),
            "note": [" ".join(rng.choice(["gift", "card", "late", "fee", "cash", "loan"], 4)) for _ in range(n)],
            "fraud": np.where(rng.random(n) < p, "yes", "no"),
        }
    )


def command(*arguments: object, fails: bool = False) -> str:
    """Run a command of the program in this process and return what it printed."""
    from crcen import cli

    sys.argv, said, code = ["crcen", *map(str, arguments)], io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
    assert bool(code) == fails, (arguments, said.getvalue())
    return said.getvalue()


def classifiers(folder: Path) -> None:
    """Fit, search, correct and draw, on arrays."""
    import crcen

    dataset = crcen.load_dataset("abalone")
    X, y = dataset.X[:1500], dataset.y[:1500]
    clf = crcen.CRCENClassifier(crcen.Budget(10), hidden=(8,), n_members=2, max_epochs=5, random_state=0).fit(X, y)
    assert clf.key_equation_.residual < 1e-10
    search = crcen.CRCENClassifierCV(hidden=[(), (8,)], l2=(1e-2, 1e-1), cv=2, max_epochs=4, random_state=0).fit(X, y)
    crcen.ExpenseCurve.from_cv(search, y, [crcen.Budget(price) for price in (2, 5, 20)]).plot()
    crcen.save(clf, folder / "clf.crcen")
    np.testing.assert_array_equal(crcen.load(folder / "clf.crcen").predict_proba(X), clf.predict_proba(X))


def tables(folder: Path) -> None:
    """Every command on a mixed table, and the same table streamed."""
    train, test, model = folder / "train.csv", folder / "test.csv", folder / "model.crcen"
    mixed_table(1200, 0).to_csv(train, index=False)  # type: ignore[attr-defined]
    mixed_table(600, 1).to_csv(test, index=False)  # type: ignore[attr-defined]
    mixed_table(1200, 0).to_parquet(folder / "train.parquet")  # type: ignore[attr-defined]
    for data, options in ((train, ["--quick"]), (folder / "train.parquet", ["--engine", "stream", "--epochs", "2"])):
        command("fit", data, "--target", "fraud", "--budget", 5, *options, "--out", model)
        command("predict", model, test, "--out", folder / "scored.parquet")
        assert "ROC AUC" in command("evaluate", model, test, "--resamples", 40)
        command("report", model, test, "--out", folder / "report.html")
        assert "fraud" in command("info", model)
    for place in (f"sqlite:///{folder}/a.db#scores", f"duckdb:///{folder}/a.duckdb#scores", folder / "scores.xlsx"):
        command("predict", model, test, "--out", place)
        assert "600 rows" in command("look", place)


def onnx(folder: Path) -> None:
    """A graph that says what the model says, which export itself checks."""
    import crcen

    frame = mixed_table(800, 2).drop(columns=["day", "note"])  # type: ignore[attr-defined]
    model = crcen.TableClassifier(
        estimator=crcen.CRCENClassifier(hidden=(8,), max_epochs=5, random_state=0), random_state=0
    )
    crcen.export_onnx(model.fit(frame.drop(columns="fraud"), frame["fraud"]), folder / "model.onnx")


def baselines(folder: Path) -> None:
    """A method to compare with, by way of imbalanced-learn."""
    import crcen
    from crcen.paper.methods import make_method

    dataset = crcen.load_dataset("abalone")
    make_method("adasyn").fit(dataset.X[:1500], dataset.y[:1500])


def fit_for_prediction(folder: Path) -> None:
    """Fit and score a small mixed table."""
    folder.mkdir(parents=True, exist_ok=True)
    model, rows = folder / "model.crcen", folder / "rows.csv"
    mixed_table(400, 0).to_csv(rows, index=False)  # type: ignore[attr-defined]
    command("fit", rows, "--target", "fraud", "--budget", "5", "--time-limit", "20", "--out", model)
    command("predict", model, rows, "--out", folder / "scored.csv")


def predict_only(folder: Path) -> None:
    """`pip install crcen` is enough to predict: the same model gives the same rows, and a fit names the extra."""
    for name in ("torch", "lightgbm", "catboost"):
        assert find_spec(name) is None, f"{name} is installed here, so nothing is tested"
    model, rows, again = folder / "model.crcen", folder / "rows.csv", folder / "again.csv"
    command("predict", model, rows, "--out", again)
    assert again.read_text() == (folder / "scored.csv").read_text()
    command("evaluate", model, rows)
    command("report", model, rows, "--out", folder / "report.html")
    assert "crcen[train]" in command("fit", rows, "--target", "fraud", "--out", folder / "no.crcen", fails=True)
    size = sum(path.stat().st_size for path in Path(sys.prefix).rglob("*") if path.is_file() and not path.is_symlink())
    print(f"predicted without torch and LightGBM; the environment has {size / 1e6:.0f} MB")


def main() -> None:
    """Run all parts, or one of `make test-predict`."""
    import crcen

    if len(sys.argv) > 1:
        {"--fit": fit_for_prediction, "--predict": predict_only}[sys.argv[1]](Path(sys.argv[2]))
        return
    print(f"Python {sys.version.split()[0]}, crcen {crcen.__version__}")
    versions()
    for part in (classifiers, tables, onnx, baselines):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as name:
            part(Path(name))
        print(f"{part.__name__}: fine, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
