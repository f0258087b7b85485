"""The page of a watch in a real browser: nothing fetched, no trouble, readable on a phone, texts escaped."""

import numpy as np
import pandas as pd
import pytest

from crcen import Budget, CRCENClassifier, TableClassifier, monitor_table

HOSTILE = '</p><script>window.hacked=1</script><img src=x onerror="window.hacked=2">'


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    rng = np.random.default_rng(0)

    def rows(n):
        x = rng.normal(size=n)
        return pd.DataFrame({"<b>x</b>": x, "z": rng.normal(size=n), "y": (rng.random(n) < 1 / (1 + np.exp(2 - x)))})

    training = rows(900)
    estimator = CRCENClassifier(Budget(4), hidden=(), random_state=0)
    model = TableClassifier(estimator=estimator, random_state=0).fit(training.drop(columns="y"), training.y)
    options = {"state": folder / "watch.json", "page": folder / "watch.html"}
    for _ in range(3):
        monitor_table(model, rows(200), when=HOSTILE, **options)
    moved = rows(200)
    moved["<b>x</b>"] += 50
    monitor_table(model, moved, when="moved", **options)
    return options["page"]


def test_the_page_loads_nothing_fits_a_phone_and_says_what_the_calls_found(chromium, page):
    for width in (390, 1160):
        chromium.open(page, width=width)
        assert chromium.troubles() == []
        assert chromium.requests() == [page.resolve().as_uri()]
        assert chromium.run("window.hacked") is None
        assert chromium.run("document.documentElement.scrollWidth") <= width
    chromium.open(page)
    assert chromium.run("document.querySelector('.badge').innerText") == "Alarm"
    assert "<b>x</b>" in chromium.run("document.querySelector('#columns').innerText")
    assert chromium.run("document.querySelectorAll('#calls tbody tr').length") == 4
    assert chromium.run("document.querySelectorAll('#labels svg circle').length") == 4
    assert chromium.run("document.querySelectorAll('#expected figure').length") == 3
