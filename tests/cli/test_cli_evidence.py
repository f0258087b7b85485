"""Declare, certify, verify, keygen and compare by commands: exit codes, files and single sentences."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

import crcen

NAMES = {2: ["no", "yes"], 3: ["fine", "worn", "broken"]}
REQUIRE = {  # the last one is impossible
    2: ["recall >= 0.05", "cost per 1000 <= 4000", "key equation", "precision >= 0.99"],
    3: ["recall[broken] >= 0.05", "cost per row <= 20", "key equation", "precision[broken] >= 0.99"],
}


def draw(n, seed, classes):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b"], n)
    level = 1.3 * x + 0.6 * (kind == "b") + rng.logistic(size=n)
    y = (level[:, None] > np.array([1.5, 3.0])[: classes - 1]).sum(axis=1)
    return pd.DataFrame({"x": x.round(4), "kind": kind, "part": np.array(NAMES[classes])[y]})


@pytest.fixture(scope="module", params=[2, 3])
def home(request, tmp_path_factory):
    """train.csv, test.csv, rows.csv and model.crcen, with two and with three classes."""
    folder, classes = tmp_path_factory.mktemp("evidence"), request.param
    draw(500, 0, classes).to_csv(folder / "train.csv", index=False)
    test = draw(600, 1, classes)
    test.to_csv(folder / "test.csv", index=False)
    test.drop(columns="part").to_csv(folder / "rows.csv", index=False)
    for name, hidden in (("model", 4), ("other", 1)):
        search = crcen.CRCENClassifierCV(hidden=(hidden,), l2=1e-2, max_epochs=3, encoding="standard")
        how = {"weighting": crcen.Budget(5), "positive": "yes"} if classes == 2 else {}
        place = folder / f"{name}.crcen"
        crcen.fit_table(folder / "train.csv", target="part", estimator=search, out=place, **how)
    return folder, classes


def test_from_a_declaration_to_a_verified_certificate(answer, printed, refusal, crcen_command, home, tmp_path):
    """A criterion that fails exits with 3, and its certificate verifies."""
    folder, classes = home
    model, test, rows = (folder / name for name in ("model.crcen", "test.csv", "rows.csv"))
    declaration, page, certificate, key = (tmp_path / name for name in ("d.toml", "c.html", "c.json", "key.pem"))
    required = [part for text in REQUIRE[classes] for part in ("--require", text)]
    how = ("certify", declaration, test, "--model", model, "--out", page, "--json-out", certificate)
    out = printed("declare", model, *required, "--groups", "kind", "--rows", rows, "--out", declaration)
    assert out.startswith("4 criteria declared")
    price = tomllib.loads(declaration.read_text())["model"]["price"]
    assert price.startswith("a miss costs 5 false alarms" if classes == 2 else "weights of mistakes: broken ")
    printed("keygen", "--out", key)
    found = answer(*how, "--sign", key, codes=[3])
    assert [one["criterion"] for one in found["criteria"]] == REQUIRE[classes]
    assert [part["group"] for part in found["criteria"][0]["groups"]] in (["a", "b"], ["b", "a"])
    assert json.loads(certificate.read_text()) == found
    together = ("--model", model, "--data", test, "--public-key", f"{key}.pub", "--declaration", declaration)
    assert "verdict is fail" in printed("verify", certificate, *together, "--page", page)
    assert answer("verify", certificate, "--data", rows, codes=[1])["valid"] is False
    certificate.write_text(certificate.read_text().replace('"pass"', '"fail"', 1))
    assert answer("verify", certificate, codes=[1])["valid"] is False
    assert "--again" in refusal(*how)
    code, out, _ = crcen_command(*how, "--again")
    assert (code, "repeated" in out, "not kept" in out) == (3, True, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("declare|{model}|--require|beauty >= 1|--out|{out}", "has a test"),
        ("declare|{model}|--require|drift|--groups|sex|--rows|{rows}|--out|{out}", "--groups"),
        ("certify|{rows}|{test}|--model|{model}|--out|{out}", "is not a declaration"),
        ("verify|{model}", "is not a certificate"),
        ("verify|{rows}", "is not a certificate"),
        ("compare|{model}|{other}|{rows}", "must be a column"),
        ("compare|{test}|--probability-old|x|--probability-new|x|--target|part", "needs a price"),
        ("compare|{test}|--probability-old|x|--target|part", "--probability-old and --probability-new must be named"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(refusal, home, tmp_path, arguments, sentence):
    folder, _ = home
    names = {"model": "model.crcen", "other": "other.crcen", "test": "test.csv", "rows": "rows.csv"}
    places = {name: folder / file for name, file in names.items()} | {"out": tmp_path / "out"}
    assert sentence in refusal(*(part.format(**places) for part in arguments.split("|")))
    assert not list(tmp_path.iterdir())


def test_compare_prints_the_verdict_first_and_continues(answer, printed, crcen_command, home, tmp_path):
    folder, _ = home
    call = ("compare", folder / "model.crcen", folder / "other.crcen", folder / "test.csv")
    assert printed(*call, "--groups", "kind").split()[0] in ("The", "Undecided:")
    found = answer(*call, "--state", tmp_path / "s.json")
    assert (found["verdict"] in ("new", "old", "undecided"), found["rows"]) == (True, 600)
    assert crcen_command(*call, "--state", tmp_path / "s.json")[0] == (found["verdict"] == "undecided")
