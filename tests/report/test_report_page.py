"""The file: complete, small, self-contained, escaped, and written whole or not at all."""

import json
import os
import re
from html.parser import HTMLParser
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from known_models import KnownPosterior, PricedPosterior, draw
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import crcen
from crcen.exceptions import DataUnavailable
from crcen.report.quality import PARTS, Part
from crcen.theory.key_equation import class_means

HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=2">'


class Page(HTMLParser):
    """The tags, the text outside of scripts and styles, and the embedded numbers of a page."""

    def __init__(self, text):
        super().__init__()
        self.source, self.tags, self.words, self.data = text, [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.cdata_elem is None:  # not in a script or style
            self.words.append(data)
        elif self.tags[-1][1].get("id") == "report-data":
            self.data = json.loads(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def priced():
    model = PricedPosterior()
    return model, *draw(model, 1500)


def written(tmp_path, *arguments, **options):
    report = crcen.write_report(*arguments, tmp_path / "report.html", **options)
    assert report.n_bytes == (tmp_path / "report.html").stat().st_size
    return Page((tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(priced, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secret")
    names = {"data_name": str(folder / "test.csv"), "model_path": r"C:\people\me\model.crcen"}
    return written(folder, *priced, **names)


def test_every_panel_is_there_with_its_numbers(page, priced):
    model, X, y = priced
    ids = {attributes.get("id") for _, attributes in page.tags}
    charts = {f"chart-{name}" for name in ("pr", "roc", "reliability", "histogram", "equation", "path", "cost")}
    assert charts | {"summary", "explorer", "curves", "columns", "warnings", "facts"} <= ids
    p = model.predict_proba(X)[:, 1]
    counts = crcen.confusion_counts(y, p > 1 / 6)
    said = (f"It finds {counts.tp:.0f} of {(y == 1).sum()} ", f"with {counts.tp + counts.fp:.0f} alarms")
    assert all(words in page.text for words in (*said, "Report on test.csv", f"crcen {crcen.__version__}"))
    assert page.data["command"] == "crcen predict model.crcen new.csv --budget"
    explorer = page.data["explorer"]
    assert (explorer["start"], explorer["score"]) == (5, sorted(set(p.tolist()), reverse=True))
    for i in (0, 17, 900, -1):
        above = p >= explorer["score"][i]
        assert (explorer["tp"][i], explorer["fp"][i]) == ((above & (y == 1)).sum(), (above & (y == 0)).sum())
    assert explorer["below"] is explorer["square"] is None


def test_the_histogram_and_the_path_are_shares_and_means(page, priced):
    (model, X, y), data = priced, page.data
    assert [sum(data["histogram"][name]) for name in ("pos", "neg")] == pytest.approx([1.0, 1.0])
    p = model.predict_proba(X)[:, 1]
    for i in (0, 30, 60):
        c = data["path"]["price"][i]
        q = c * p / (c * p + 1 - p)
        means = q[y == 1].mean(), q[y == 0].mean()
        law = class_means(means[0] - means[1], crcen.Alpha(c * (y == 1).sum() / (y == 0).sum()))
        found = [data["path"][name][i] for name in ("mean_pos", "mean_neg", "law_pos", "law_neg")]
        assert found == pytest.approx([*means, *law])
    equation = crcen.key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_)
    noise = 1 + 2 * len(y) / (model.weighting_.n_pos + model.weighting_.n_neg)  # the model uncertainty
    found = [data["key_equations"]["these_rows"][name] for name in ("lhs", "z")]
    assert found == pytest.approx([equation.lhs, equation.z / noise**0.5])


def test_it_needs_nothing_from_elsewhere_and_names_no_folder(page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style")}
        assert attributes.get("href", "#").startswith("#")
    assert set(re.findall(r"https?://[^\s\"']+", page.source)) == {"http://www.w3.org/2000/svg"}
    (policy,) = (a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert ["unsafe" in policy, "secret" in page.source, "people" in page.source] == [False] * 3


def test_hostile_names_are_text(tmp_path):
    model = PricedPosterior(classes=("ok", HOSTILE))
    X, y = draw(model, 800)
    frame = pd.DataFrame(X, columns=[HOSTILE, '"quoted" & <b>', "x" * 500])
    names = {"title": HOSTILE, "data_name": f"a&b{HOSTILE.replace('/', '')}", "model_path": "it's; rm -rf ~.crcen"}
    page = written(tmp_path, model, frame, y, **names)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not [tag for tag, _ in page.tags if tag in ("img", "b")]
    assert page.text.count(HOSTILE) >= 4
    assert '"quoted" & <b>' in page.text
    assert "x" * 80 not in page.text
    assert page.data["rows"]["pos_label"] == HOSTILE
    assert page.data["command"] == """crcen predict 'it'"'"'s; rm -rf ~.crcen' new.csv --budget"""


def test_many_rows_stay_under_a_megabyte(tmp_path):
    model = PricedPosterior(a=-6.0)
    X, y = draw(model, 60_000)
    page = written(tmp_path, model, X, y)
    assert (tmp_path / "report.html").stat().st_size < 500_000
    explorer = page.data["explorer"]
    assert len(explorer["score"]) <= 2000
    p = model.predict_proba(X)[:, 1]
    scores = np.array(explorer["score"])
    for price in [*explorer["grid"][::25], explorer["start"]]:
        k = (scores > 1 / (1 + price)).sum()
        assert (explorer["fp"][k - 1] if k else 0) == ((p > 1 / (1 + price)) & (y == 0)).sum()


@pytest.mark.parametrize("is_table", [False, True])
def test_a_cross_validated_network_brings_all_its_evidence(tmp_path, rare_rows, is_table):
    X, y = rare_rows(500)
    labels = np.where(y == 1, "fraud", "ok")  # the positive class is classes_[0]
    model = crcen.CRCENClassifierCV(crcen.Budget(4), hidden=[(4,)], l2=[1e-2], max_epochs=5, cv=3, random_state=0)
    if is_table:
        X = pd.DataFrame({"amount": X[:, 0], "kind": np.where(X[:, 1] > 0, "new", "old"), "rest": X[:, 2]})
        model = crcen.TableClassifier(estimator=model, random_state=0)
    network = getattr(model.fit(X[:300], labels[:300]), "estimator_", model)
    page = written(tmp_path, model, X[300:], labels[300:])
    equations = [page.data["key_equations"][name]["lhs"] for name in ("training", "out_of_fold")]
    assert equations == pytest.approx([network.key_equation_.lhs, network.oof_key_equation_.lhs])
    found = ((model.predict(X[300:]) == "fraud") & (labels[300:] == "fraud")).sum()
    said = (f"It finds {found} of {(labels[300:] == 'fraud').sum()} ", "out of fold", "(4,)", type(model).__name__)
    assert all(words in page.text for words in (*said, "from those of training rows"))
    (first, *_) = page.data["reliability"][0]["groups"]
    assert first["mean_q"] > first["mean_p"]


@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(10, random_state=0)])
def test_any_classifier_will_do(tmp_path, rare_rows, model):
    X, y = rare_rows(400)
    frame = pd.DataFrame(X, columns=["a", "b", "b"])  # a name may come twice
    model.fit(frame.to_numpy(), y)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, y.size)
    page = written(tmp_path, model, frame.to_numpy(), y, sample_weight=weights)
    counts = crcen.confusion_counts(y, model.predict_proba(X)[:, 1] > 0.5, weights)
    assert page.data["explorer"]["square"]
    assert f"It finds {counts.tp:.1f} of {weights[y == 1].sum():.1f} by weight" in page.text
    for words in ("model has no price", "stores no key equation of its training", "no weighted probabilities"):
        assert words in page.text
    assert page.data["reliability"][0]["groups"][0]["mean_q"] is None


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_part_of_the_page_is_one_entry_that_states_for_which_models(tmp_path, rare_rows, monkeypatch, n_classes):
    monkeypatch.setitem(PARTS, "mine", Part(lambda evidence: evidence.n_rows, is_drawn=True))
    X, y = rare_rows(300)
    y = np.where((n_classes == 3) & (X[:, 1] > 0), 2, y)
    data = written(tmp_path, LogisticRegression().fit(X, y), X, y).data
    own = {"explorer", "histogram", "path", "decisions"} if n_classes == 2 else {"costs"}
    shared = {"reliability", "key_equations", "rows", "models", "command", "pages", "mine"}
    assert (set(data), data["mine"]) == (shared | own, 300)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"y": np.zeros(60, int)}, crcen.InvalidInput, "y holds only 0"),
        ({"X": np.zeros((0, 2)), "y": []}, crcen.InvalidInput, "y holds only no label"),
        ({"y": np.arange(60)}, crcen.InvalidInput, "y must hold the labels"),
        ({"y": np.zeros(59, int)}, crcen.InvalidInput, "one label for each of the 60 rows"),
        ({"X": np.zeros(60)}, crcen.InvalidInput, "a table of rows and columns"),
        ({"sample_weight": np.full(60, -1.0)}, crcen.InvalidInput, "finite and not negative"),
        ({"sample_weight": np.ones(3)}, crcen.InvalidInput, "one weight for each"),
        ({"model": LinearSVC()}, crcen.InvalidParameter, "with predict_proba"),
        ({"model": LogisticRegression()}, crcen.InvalidParameter, "a fitted classifier"),
        ({"model": KnownPosterior(classes=(0, 1, 2))}, crcen.InvalidInput, "a column for each class"),
        ({"model": KnownPosterior(a=np.nan)}, crcen.InvalidInput, "must hold probabilities"),
        ({"random_state": -1}, crcen.InvalidParameter, "random_state must be a whole number"),
        ({"path": "."}, DataUnavailable, "it is a folder"),
        ({"path": "nowhere/report.html"}, DataUnavailable, "does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path, monkeypatch, change, error, sentence):
    monkeypatch.chdir(tmp_path)
    model = KnownPosterior(a=0.0)
    X, y = draw(model, 60)
    given = {"model": model, "X": X, "y": y, "path": "report.html", **change}
    with pytest.raises(error, match=sentence):
        crcen.write_report(**given)
    assert list(tmp_path.iterdir()) == []


def test_what_comes_back_is_a_path_with_the_warnings(tmp_path, priced):
    model, X, y = priced
    report = crcen.write_report(model, X, y, str(tmp_path / "one.html"))
    assert os.fspath(report) == str(report) == str(tmp_path / "one.html")
    assert (report.warnings, len(report.findings)) == ((), 9)
    few = crcen.write_report(model, X[:120], y[:120], tmp_path / "two.html")
    assert "CRC001" in [one.code for one in few.warnings]


def test_a_failed_write_leaves_the_old_file(tmp_path, priced, monkeypatch):
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(os, "replace", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(DataUnavailable, match="No space left"):
        crcen.write_report(*priced, tmp_path / "report.html")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("report.html", "old")]
