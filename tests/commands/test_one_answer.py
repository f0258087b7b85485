"""`crcen evaluate` and `crcen report` on the same rows: every figure and verdict that both have is the same."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import crcen


def draw(n, seed, shift=0.0, slope=1.2):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    bad = rng.random(n) < 1 / (1 + np.exp(2.2 - shift - slope * x - (kind == "c")))
    return pd.DataFrame({"x": x.round(4), "kind": kind, "bad": np.where(bad, "yes", "no")})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """At a budget of 10, so that the steps 5 to 10 and 10 to 20 are on the report's ladder too."""
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=20, encoding="standard", n_members=1)
    fit = crcen.fit_table(draw(1500, 0), target="bad", weighting=crcen.Budget(10), estimator=search)
    return crcen.save(fit.model, tmp_path_factory.mktemp("one") / "model.crcen")


def embedded(path):
    text = re.search(r'id="report-data">(.*?)</script>', path.read_text(), re.S)[1]
    return json.loads(text)


# From rows like those of training to rows on which everything is off, some of them near a limit.
SHIFTS = np.linspace(-1.0, 1.0, 9)


def outcome(crcen_command, model, folder, seed, shift):
    draw(1000, 100 + seed, shift).to_csv(folder / "rows.csv", index=False)
    page = folder / "report.html"
    judged = crcen_command("evaluate", model, folder / "rows.csv", "--resamples", 5, "--json")
    reported = crcen_command("report", model, folder / "rows.csv", "--out", page, "--json")
    assert (judged[0], reported[0]) == (0, 0)
    return json.loads(judged[1]), json.loads(reported[1]), embedded(page), page.read_text()


def test_figures_and_verdicts_are_the_same(crcen_command, model, tmp_path):
    seen = {"CRC004": set(), "CRC007": set(), "step": set()}
    for seed, shift in enumerate(SHIFTS):
        judged, reported, page, text = outcome(crcen_command, model, tmp_path, seed, shift)
        found = {one["code"]: one for one in reported["findings"]}
        equation, panel = judged["key_equation"], page["key_equations"]["these_rows"]
        assert equation["z"] == pytest.approx(panel["z"])
        assert (equation["left"], equation["right"]) == pytest.approx((panel["lhs"], panel["rhs"]))
        assert f"z = {equation['z']:.2f}," in found["CRC007"]["measured"]
        assert f"<td>{equation['z']:.2f}</td>" in text
        assert (equation["verdict"] == "does not hold") == (found["CRC007"]["status"] == "warning")
        moved = any("CRC004" in note for note in judged["notes"])
        # Scores out of fold are looked at in the report alone, so it may warn where the share did not move.
        assert not moved or found["CRC004"]["status"] == "warning"
        own = {one["code"]: one["status"] for one in judged["findings"]}
        assert own == {code: one["status"] for code, one in found.items() if code in own}
        steps = {tuple(step["bracket"]): step for step in judged["expense"]}
        assert set(steps) == {(5.0, 10.0), (10.0, 20.0)}
        if any(step["is_beyond_noise"] for step in steps.values()):
            assert found["CRC002"]["status"] == "warning"
        seen["CRC004"].add(moved)
        seen["CRC007"].add(equation["verdict"])
        seen["step"] |= {step["is_beyond_noise"] for step in steps.values()}
        counts = judged["counts"]
        assert counts["found"] == page["explorer"]["tp"][_cut(page, 10.0)]
        assert counts["false_alarms"] == page["explorer"]["fp"][_cut(page, 10.0)]
        assert (counts["positives"], judged["rows"]) == (page["rows"]["n_pos"], page["rows"]["n_rows"])
        assert judged["price"]["cost_ratio"] == 10
    assert seen == {"CRC004": {True, False}, "CRC007": {"holds", "does not hold"}, "step": {True, False}}


def _cut(page, price):
    """The last point of the explorer that is an alarm at a price."""
    return int(np.flatnonzero(np.array(page["explorer"]["score"]) > 1 / (1 + price))[-1])
