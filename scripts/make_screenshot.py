"""Take a screenshot of the expense explorer of a report on bundled rows: docs/images/explorer.png, for the README.

    python scripts/make_screenshot.py

Needs a Chromium.
"""

import sys
import tempfile
from pathlib import Path

from headless_chromium import Chromium, find_chromium
from sklearn.model_selection import train_test_split

import crcen

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "images" / "explorer.png"


def main() -> int:
    """Fit on three fifths of satimage, report on the rest, photograph the explorer at costs of 500 and 50."""
    program = find_chromium()
    if program is None:
        print("no Chromium is installed", file=sys.stderr)
        return 1
    data = crcen.load_dataset("satimage")
    X_train, X_test, y_train, y_test = train_test_split(data.X, data.y, stratify=data.y, test_size=0.4, random_state=0)
    model = crcen.CRCENClassifierCV(crcen.Budget(5), random_state=0).fit(X_train, y_train)
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Chromium(program) as browser:
        page = Path(folder) / "report.html"
        crcen.write_report(model, X_test, y_test, page, data_name="test.csv", model_path="model.crcen")
        browser.open(page, width=1160, height=1000)
        browser.type_over("#cost-miss", "500")
        browser.type_over("#cost-alarm", "50")
        browser.run("document.activeElement.blur(); new Promise((done) => setTimeout(done, 100))")
        browser.photograph(TARGET, clip="#explorer")
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
