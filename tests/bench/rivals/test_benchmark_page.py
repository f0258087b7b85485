"""Tables from hand-made rows."""

import numpy as np
import pytest

from bench.rivals.page import (
    ROPE,
    budgets,
    failures,
    means,
    own_decisions,
    partial_means,
    partial_ranks,
    ranks,
    relative_gap,
    scores,
    versus,
)
from bench.rivals.peers import OURS, PEERS
from bench.rivals.results import METRICS, Results

OURS_LABEL = PEERS[OURS].label

PROTOCOL = {"test_size": 0.25}


def row(peer, dataset, split, value, **other):
    """A row whose every score is one number; lower is better for two of the metrics, so their sign is turned."""
    metrics = {name: metric.sign * value for name, metric in METRICS.items()}
    times = {"seconds_fit": 2.0, "processor_fit": 1.5, "seconds_predict": 0.1, "processor_predict": 0.1}
    common = {"own_g_mean": value / 2, "own_f1": value / 4, "settings": 16, "version": "x 1", "processors": 2}
    return {"peer": peer, "dataset": dataset, "split": split, **metrics, **times, **common, **other}


def failed(peer, dataset, split=0):
    return {"peer": peer, "dataset": dataset, "split": split, "version": "x 1", "processors": 2, "error": "no luck"}


@pytest.fixture
def rows():
    """Three peers on two sets of either half, two splits each."""
    values = {
        "ecoli": (0.9, 0.8, 0.7),
        "libras_move": (0.5, 0.6, 0.7),
        "oil": (0.9, 0.8, 0.1),
        "scene": (0.7, 0.703, 0.1),
    }
    return [
        row(peer, name, split, value + 0.01 * split)
        for name, three in values.items()
        for peer, value in zip(("crcen_cv", "lightgbm", "logistic"), three, strict=True)
        for split in (0, 1)
    ]


def column(table, key, title):
    return {line[key]: line.get(title) for line in table.rows}


def test_mean_ranks_of_each_half(rows):
    development = column(ranks(Results(rows, "development"), "development"), "peer", "F1")
    assert development == {OURS_LABEL: "**2.00**", "LightGBM": "**2.00**", "logistic regression": "**2.00**"}
    table = ranks(Results(rows, "confirmation"), "confirmation")
    assert column(table, "peer", "log loss") == {
        OURS_LABEL: "**1.50**", "LightGBM": "**1.50**", "logistic regression": "3.00",
    }  # fmt: skip
    assert "over 2 sets" in table.note
    assert "critical difference" in table.note
    both = column(ranks(Results(rows), "all"), "peer", "G-mean")
    assert both[OURS_LABEL] == "**1.75**"


def test_a_peer_that_failed_is_last_and_one_that_ran_in_part_is_not_ranked(rows):
    kept = [r for r in rows if (r["peer"], r["dataset"]) != ("crcen_cv", "oil")]
    broken = ranks(Results([*kept, failed("crcen_cv", "oil", 0), failed("crcen_cv", "oil", 1)], "confirmation"), "")
    assert column(broken, "peer", "F1")[OURS_LABEL] == "2.50"  # 3 and 2
    partial = ranks(Results(kept, "confirmation"), "confirmation")
    assert set(column(partial, "peer", "F1")) == {"LightGBM", "logistic regression"}
    assert "Not ranked here, since run on some sets or splits only: " + OURS_LABEL in partial.note


def test_a_peer_that_ran_in_part_is_ranked_where_it_ran(rows):
    # On oil, split 0, TabM lies between 0.9 and 0.8; split 1, where it did not run, would turn the order.
    tabm, odd = row("tabm", "oil", 0, 0.85), failed("rusboost", "scene", 1)
    turned = [r | {"f1": 0.0} if (r["peer"], r["dataset"], r["split"]) == ("crcen_cv", "oil", 1) else r for r in rows]
    table = partial_ranks(Results([*turned, tabm, odd], "confirmation"), "confirmation")
    assert column(table, "peer", "F1") == {"TabM": "2.00 (1.00)", "RUSBoost": "4.00 (2.00)"}
    assert column(table, "peer", "log loss")["TabM"] == "2.00 (1.00)"
    assert column(table, "peer", "run on") == {"TabM": "1 of 2 sets × 1 split", "RUSBoost": "1 of 2 sets × 1 split"}
    assert "among the 3 of the table above" in table.note
    assert OURS_LABEL in table.note
    without = partial_ranks(Results([r for r in [*rows, tabm] if r["peer"] != OURS], "confirmation"), "confirmation")
    assert column(without, "peer", "F1") == {"TabM": "1.00"}


def test_a_peer_that_ran_in_part_stands_beside_the_committee_on_the_same_splits(rows):
    committee = [r | {"peer": "committee", "cost_5": r["cost_5"] - 0.05} for r in rows if r["peer"] == OURS]
    ran = [row("tabm", "oil", 0, 0.85), row("tabm", "scene", 1, 0.6), failed("tabm", "scene", 0)]
    results = Results([*rows, *committee, *ran, failed("rusboost", "oil")], "confirmation")
    table = partial_means(results, "confirmation")
    # Split 0 of oil and split 1 of scene alone; costs have their sign turned in these rows.
    ours = -(0.9 + 0.05 + 0.71 + 0.05) / 2
    assert column(table, "peer", "cost at 5") == {
        "TabM": f"{-(0.85 + 0.6) / 2:.4f} ({ours:.4f})", "RUSBoost": "nan (nan)",
    }  # fmt: skip
    runs = {"TabM": "2 of 2 sets × 1 to 2 splits, failed on 1", "RUSBoost": "1 of 2 sets × 1 split, failed on 1"}
    assert column(table, "peer", "run on") == runs
    assert PEERS["committee"].label in table.note
    assert "(1.00)" in column(partial_ranks(results, "confirmation"), "peer", "cost at 5")["TabM"]


def test_searches_that_the_time_limit_cut_short_are_named(rows):
    hasty = [r | {"settings": 7, "time_limit": 90.0} if r["peer"] == "lightgbm" and r["split"] else r for r in rows]
    ours = [r | {"settings": 12} if r["peer"] == OURS else r for r in hasty]  # its grid is its own
    results = Results(ours, "confirmation")
    said = "Searches cut short by the time limit: LightGBM on 2 of 4 splits (7 of 16 settings in 90 seconds)."
    for table in (ranks(results, "confirmation", 16), means(results, "confirmation", 16)):
        assert table.note.endswith(said)
    assert "cut short" not in ranks(Results(rows, "confirmation"), "confirmation", 16).note
    tabled = [*ours, row("catboost", "oil", 0, 0.5, settings=3, time_limit=100.0)]
    for table in (partial_ranks, partial_means):
        note = table(Results(tabled, "confirmation"), "confirmation", 16).note
        assert note.endswith("CatBoost on 1 of 1 splits (3 of 16 settings in 100 seconds).")


def test_scores_are_means_over_splits_with_the_best_in_bold(rows):
    table = scores(Results([*rows, failed("tabm", "oil")]), "log_loss")
    assert column(table, "set", OURS_LABEL)["ecoli"] == "**-0.905**"
    assert column(table, "set", "LightGBM")["ecoli"] == "-0.805"
    assert column(table, "set", "TabM") == {"ecoli": "", "libras_move": "", "oil": "failed", "scene": ""}
    assert column(table, "set", "half")["oil"] == "confirmation"
    assert "lower is better" in table.note


def test_wins_ties_losses_and_probabilities(rows):
    table = versus(Results(rows), "all", PROTOCOL)
    lines = {line["against"]: line for line in table.rows}
    # 0.9 against 0.8 twice, 0.5 against 0.6, and 0.003 apart; the difference is one number on both splits.
    assert lines["LightGBM"]["F1: sets"].startswith("2 / 1 / 1")
    assert lines["logistic regression"]["log loss: sets"].startswith("3 / 0 / 1")
    better, equal, worse = map(float, lines["logistic regression"]["F1: P"].split(" / "))
    assert better > 0.85
    assert better + equal + worse == pytest.approx(1.0, abs=0.011)


def test_a_peer_that_is_surely_better_stands_out():
    rows = [
        row(peer, name, 0, value)
        for peer, value in (("crcen_cv", 0.5), ("lightgbm", 0.6))
        for name in ("ecoli", "libras_move", "car_eval_4", "arrhythmia", "webpage", "letter_img")
    ]
    (line,) = versus(Results(rows), "all", PROTOCOL).rows
    assert line["G-mean: P"].startswith("**0.00 / ")
    assert line["G-mean: sets"] == "0 / 0 / 6 (0, 0)"  # one split: no t-test


def test_pairs_are_compared_on_the_splits_that_both_have(rows):
    kept = [r for r in rows if (r["peer"], r["split"]) != ("lightgbm", 1)]
    kept = [r | {"f1": 0.0} if (r["peer"], r["split"]) == ("crcen_cv", 1) else r for r in kept]
    line = next(line for line in versus(Results(kept), "all", PROTOCOL).rows if line["against"] == "LightGBM")
    assert line["F1: sets"].startswith("2 / 1 / 1")


def test_budgets_and_own_decisions(rows):
    table = budgets(Results([*rows, row("lightgbm", "isolet", 0, 0.5, settings=3), failed("lightgbm", "webpage")]))
    line = next(line for line in table.rows if line["peer"] == "LightGBM")
    assert line["settings"] == "3 to 16"
    assert (line["development"], line["confirmation"]) == ("3 of 13 sets × 1 to 2 splits",) * 2
    assert line["failed"] == "1"
    assert line["seconds to fit"] == "1.5"
    other = next(line for line in table.rows if line["peer"] == OURS_LABEL)
    assert (other["development"], other["confirmation"]) == ("2 of 13 sets × 2 splits",) * 2
    own = column(own_decisions(Results(rows)), "peer", "G-mean")
    assert float(own["logistic regression"]) == pytest.approx(np.mean([0.705, 0.705, 0.105, 0.105]) / 2, abs=6e-4)


def test_budgets_state_limits_devices_and_a_missing_search(rows):
    card = {"settings": 1, "device": "card 9", "time_limit": 90.0}
    rows = [r | {"time_limit": 60.0} for r in rows]
    added = [row("tabm", "oil", 0, 0.5, **card), row("lightgbm", "isolet", 0, 0.5, time_limit=90.0)]
    added += [row("realmlp", "oil", 0, 0.5, settings=1, device="cpu"), failed("rusboost", "oil")]
    lines = {line["peer"]: line for line in budgets(Results([*rows, *added])).rows}
    assert lines["LightGBM"]["limit"] == "60, 90"
    assert lines["TabM"]["settings"] == lines["RealMLP"]["settings"] == "defaults, no search"
    assert "ran on card 9" in lines["TabM"]["note"]
    assert "at most 60,000 numbers" in lines["RealMLP"]["note"]
    assert lines["TabM"]["development"] == "0 of 13 sets"
    assert (lines["RUSBoost"]["settings"], lines["RUSBoost"]["failed"]) == ("", "1")
    only = budgets(Results([r for r in rows if r["dataset"] == "oil"])).rows
    assert all("development" not in line for line in only)


def test_failures_are_grouped_by_their_sentence():
    absent = {"peer": "self_paced", "dataset": "*", "split": 0, "error": "not installed"}
    since = {"peer": "lightgbm", "dataset": "*", "split": 0, "error": "not installed"}
    rows = [absent, since, row("lightgbm", "oil", 0, 0.5), failed("rusboost", "oil"), failed("rusboost", "scene", 3)]
    assert [tuple(line.values()) for line in failures(rows).rows] == [
        ("RUSBoost", "no luck", "oil 0, scene 3"),
        ("self-paced ensemble", "not installed", "all sets"),
    ]


def test_means_are_over_sets_and_sorted_by_the_rank_over_all_prices(rows):
    table = means(Results(rows, "confirmation"), "confirmation")
    assert [line["peer"] for line in table.rows] == [OURS_LABEL, "LightGBM", "logistic regression"]
    assert column(table, "peer", "all costs") == {
        OURS_LABEL: "1.50", "LightGBM": "1.50", "logistic regression": "3.00",
    }  # fmt: skip
    # Costs have their sign turned in these rows; two splits, the second a hundredth better.
    assert column(table, "peer", "cost at 5")[OURS_LABEL] == f"{-(0.9 + 0.7) / 2 - 0.005:.4f}"


def test_what_older_rows_lack_is_not_ranked(rows):
    older = [{name: value for name, value in r.items() if name != "cost_20"} for r in rows]
    mixed = Results([*older[:3], *rows[3:]])
    assert "cost_20" not in mixed.metrics
    table = ranks(mixed, "all")
    assert "cost at 20" not in table.rows[0]
    assert "all costs" not in table.rows[0]
    assert "cost at 5" in table.rows[0]
    assert "all costs" in ranks(Results(rows), "all").rows[0]


def test_the_margin_is_a_share_of_the_scores():
    """A gap of .004 is nothing between .5 and .504, and a tenth of a loss of .04."""
    assert relative_gap(0.504, 0.500) < ROPE
    assert relative_gap(-0.040, -0.044) == pytest.approx(0.004 / 0.042)
    assert relative_gap(-0.044, -0.040) == -relative_gap(-0.040, -0.044)
    assert relative_gap(0.0, 0.0) == 0.0
