"""The published numbers are the paper's, all of them."""

import csv
import re
from importlib import resources

import pytest

from crcen.paper.reproduction.published import published

SETS = {
    "Abalone": "abalone",
    "Coil": "coil_2000",
    "Satimage": "satimage",
    "Scene": "scene",
    "Solar": "solar_flare_m0",
    "UScrime": "us_crime",
}
METHODS = {
    "MLP": "mlp",
    "CSMLP": "csmlp",
    "CRCEN": "crcen",
    "ADASYN": "adasyn",
    "SMOTE": "smote",
    "RUSB": "rusboost",
    "EE": "easyensemble",
    "BRF": "balanced_rf",
}
WEIGHTS = ("half", "balanced", "double")


@pytest.fixture(scope="module")
def rows():
    text = resources.files("crcen.paper.reproduction").joinpath("published.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(scope="module")
def tex_tables(paper_tex):
    """The cells of the paper's tables, mark-up taken off, row by row."""
    tables = []
    for body in re.findall(r"\\begin\{tabular\}.*?\n(.*?)\\end\{tabular\}", paper_tex, re.DOTALL):
        body = re.sub(r"\\(multirow|multicolumn)\{[^}]*\}\{[^}]*\}\{([^}]*)\}", r"\2", body)
        body = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body)
        body = re.sub(r"\\(Tstrut|Bstrut|hline|toprule|midrule|bottomrule)\b", "", body)
        tables.append([[cell.strip() for cell in line.split("&")] for line in body.split(r"\\") if line.strip()])
    assert len(tables) == 3
    return tables


def test_every_cell_is_there_once(rows):
    keys = [(row["artefact"], row["row"], row["column"], row["metric"]) for row in rows]
    assert len(keys) == len(set(keys)) == 6 + 18 + 96 + 4
    wanted = {("table1", s, w, "lhs") for s in ("sim1", "sim2") for w in WEIGHTS}
    wanted |= {("table2", d, c, "count") for d in SETS.values() for c in ("n_samples", "n_features")}
    wanted |= {("table2", d, "imbalance_ratio", "ratio") for d in SETS.values()}
    wanted |= {("table3", m, d, metric) for m in METHODS.values() for d in SETS.values() for metric in ("f1", "g_mean")}
    wanted |= {("figure1", "abalone", weight, metric) for weight in ("0.5", "1") for metric in ("fn", "fp")}
    assert set(keys) == wanted


def test_standard_deviations_are_table_1s(rows):
    assert all(bool(row["sd"]) == (row["artefact"] == "table1") for row in rows)


def test_table_1_is_the_papers(tex_tables):
    lines = {line[0]: line[1:] for line in tex_tables[0] if line[0]}
    spread = [line[1:] for line in tex_tables[0] if not line[0]]
    for i, name in enumerate(("sim1", "sim2")):
        for j, weight in enumerate(WEIGHTS):
            mean, sd = lines[f"LHS (Sim{i + 1})"][j], spread[i][j].strip("()")
            assert published("table1", name, weight, "lhs") == (float(mean), float(sd))


def test_table_2_is_the_papers(tex_tables):
    lines = tex_tables[1][1:]
    assert [line[0] for line in lines] == list(SETS)
    for paper_name, n_samples, n_features, ratio in lines:
        name = SETS[paper_name]
        assert published("table2", name, "n_samples", "count") == (float(n_samples), None)
        assert published("table2", name, "n_features", "count") == (float(n_features), None)
        assert published("table2", name, "imbalance_ratio", "ratio") == (float(ratio), None)


def test_table_3_is_the_papers(tex_tables):
    head, metrics, *lines = tex_tables[2]
    columns = list(zip([SETS[name] for name in head[1:] for _ in (0, 1)], metrics[1:], strict=True))
    assert len(columns) == 12
    assert [line[0] for line in lines] == list(METHODS)
    for label, *values in lines:
        for (name, metric), value in zip(columns, values, strict=True):
            key = {"F1": "f1", "Gm": "g_mean"}[metric]
            assert published("table3", METHODS[label], name, key) == (float(value), None)


def test_the_example_of_figure_1_is_the_papers(paper_tex):
    assert "$(32,158)$ and $(13,263)$ are two pairs of (FN, FP) corresponding to $\\alpha=0.5$" in paper_tex
    cells = [published("figure1", "abalone", weight, metric)[0] for weight in ("0.5", "1") for metric in ("fn", "fp")]
    assert cells == [32, 158, 13, 263]


def test_what_the_paper_lacks_is_none():
    assert published("table3", "mlp_threshold", "abalone", "f1") is None
