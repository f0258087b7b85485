"""Draw the images of docs/gallery.md: displays with matplotlib, panels of the pages with Chromium.

    python scripts/make_gallery.py

Check them before you commit them. Without Chromium the panels are not changed.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from headless_chromium import Chromium, find_chromium
from sklearn.model_selection import train_test_split

import crcen
from crcen import Budget

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images" / "gallery"


def save(name: str) -> None:
    """Write the current figure."""
    import matplotlib.pyplot as plt

    plt.gcf().set_size_inches(6.4, 4.2)
    plt.savefig(FOLDER / f"{name}.png", dpi=75, bbox_inches="tight", metadata={"Software": None})
    plt.close("all")


def main() -> int:
    """Fit one small model on abalone and draw everything of it."""
    matplotlib.use("Agg")
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = crcen.load_dataset("abalone")
    table = pd.DataFrame(data.X, columns=list(data.feature_names))
    train, test, y_train, y_test = train_test_split(table, data.y, stratify=data.y, test_size=0.4, random_state=0)
    settings = {"hidden": (16,), "l2": 1e-2, "encoding": "standard", "n_members": 1, "max_epochs": 15}
    estimator = crcen.CRCENClassifierCV(Budget(10), random_state=0, **settings)
    model = crcen.TableClassifier(estimator=estimator, random_state=0).fit(
        train, pd.Series(y_train, name="seven_rings")
    )
    p = model.predict_proba(test)[:, 1]

    prices = [Budget(price) for price in (1, 2, 4, 8, 16, 32)]
    crcen.ExpenseCurve.from_predictions(y_test, p, prices, random_state=0).plot()
    save("expense_curve")
    monitor = crcen.KeyEquationMonitor(model.estimator_, y_reference=y_train)
    rng = np.random.default_rng(0)
    for week in range(30):
        rows = rng.choice(len(p), 250)
        odds = p[rows] / (1 - p[rows]) * np.exp(0.0 if week < 15 else 0.7)
        q = model.weighted_proba(test.iloc[rows])[:, 1]
        monitor.update(q=q, y=(rng.random(250) < odds / (1 + odds)).astype(int), when=f"week {week + 1}")
    monitor.plot()
    save("monitor")

    program = find_chromium()
    if program is None:
        print("no Chromium is installed: panels were left as they are", file=sys.stderr)
        return 0
    sizes = pd.qcut(test["whole_weight"], 3, labels=["small", "middle", "large"]).astype(str)
    with tempfile.TemporaryDirectory() as folder, Chromium(program) as browser:
        page, watch, state = (Path(folder) / name for name in ("report.html", "watch.html", "watch.json"))
        crcen.write_report(model, test, y_test, page, groups={"size": sizes.to_numpy()})
        labelled = test.assign(seven_rings=y_test)
        for week in range(6):
            rows = labelled.iloc[week::7]
            crcen.monitor_table(model, rows, state=state, page=watch, when=f"week {week + 1}")
        for name, path, clip in (
            ("effects", page, "#effects"),
            ("groups", page, "#groups"),
            ("importance", page, "#columns"),
            ("curves", page, "#curves"),
            ("watch", watch, "#expected"),
        ):
            browser.open(path, width=1000, height=900)
            browser.photograph(FOLDER / f"{name}.png", clip=clip)
    for picture in sorted(FOLDER.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
