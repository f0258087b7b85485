"""One call rebuilds what it is asked for, into one folder with one page."""

import re
from html.parser import HTMLParser

import pytest

import crcen
from crcen.paper.reproduction import reproduce as module
from crcen.paper.reproduction.reproduce import read_settings, reproduce

BUNDLED = {"abalone", "satimage"}


@pytest.fixture
def tiny(monkeypatch, protocol, toy_sets):
    """Settings that take seconds, on toy sets with the names of bundled ones."""

    def settings(quick, config=None, reading=None):
        return {
            "table1": {
                "runs": 2,
                "runs_at_once": 1,
                "n_pos": 50,
                "n_neg": 500,
                "n_test": 50,
                "seed": 0,
                "hidden": [2],
                "epochs": 2,
                "learning_rate": 0.01,
            },
            "protocol": protocol | {"sets": ["abalone", "satimage"]},
            "table3": {"methods": ["mlp", "csmlp", "crcen", "mlp_threshold"]},
            "figure1": {"alphas": [0.5, 1.0, 1.5, 2.0]},
        }

    monkeypatch.setattr(module, "read_settings", settings)


class Page(HTMLParser):
    """What a page loads or links to, and its headings."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.tags, self.headings, self._inside = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._inside = tag == "h2"
        names = ("src", "href", "xlink:href", "data", "action", "poster", "srcset")
        self.addresses += [value for name, value in attrs if name in names]

    def handle_data(self, data):
        if self._inside:
            self.headings.append(data)
            self._inside = False


@pytest.mark.parametrize("name", ["table4", "", "Table1", "tables"])
def test_an_unknown_artefact_is_refused(tmp_path, name):
    with pytest.raises(crcen.InvalidParameter, match="choose one of table1, table2, table3, figure1, all"):
        reproduce(name, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given", [{"scoring": "F1"}, {"scoring": "accuracy"}, {"selection": "every_split"}])
def test_unknown_choices_are_refused(tmp_path, given):
    (name, value) = next(iter(given.items()))
    with pytest.raises(crcen.InvalidParameter, match=f"{name} must be one of .* got '{value}'"):
        reproduce("table2", quick=True, out=tmp_path / "out", **given)


def test_a_file_is_no_run_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    for out in (path, path / "below"):
        with pytest.raises(crcen.InvalidParameter, match=r"cannot be a run folder \(.*\); give another --out"):
            reproduce("table2", quick=True, out=out)
    assert path.read_text() == "mine"


def test_quick_settings_name_bundled_sets_only(monkeypatch, tmp_path):
    quick, full = read_settings(True), read_settings(False)
    assert set(quick["protocol"]["sets"]) == BUNDLED
    assert {row.name for row in crcen.list_datasets() if row.paper_name} == set(full["protocol"]["sets"])
    assert quick.keys() == full.keys() == {"table1", "protocol", "table3", "figure1"}
    for part, settings in full.items():
        assert quick[part].keys() == settings.keys()
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.setenv("CRCEN_CACHE", str(tmp_path))
    assert {row.name for row in crcen.list_datasets() if row.available == "bundled"} == BUNDLED


def test_full_settings_are_the_papers_protocol():
    full = read_settings(False)
    protocol = full["protocol"]
    assert (protocol["splits"], protocol["test_size"], protocol["folds"]) == (4, 0.25, 4)
    assert max(protocol["l2"]) >= 0.1  # us_crime needs it
    assert protocol["selection"] == "first_split"
    assert full["figure1"]["alphas"] == [0.5, 1, 1.5, 2]
    table1 = full["table1"]
    assert (table1["runs"], table1["n_pos"], table1["n_neg"], table1["n_test"]) == (100, 1000, 10000, 1000)
    assert table1["hidden"] == [10]
    for settings in (full, read_settings(True)):
        assert settings["table3"]["methods"] == [name for name, method in crcen.METHODS.items() if method.in_table3]


def test_everything_on_one_self_contained_page(tiny, tmp_path):
    report = reproduce("all", out=tmp_path / "out")
    assert report.folder == tmp_path / "out"
    text = (report.folder / "report.html").read_text()
    page = Page(text)
    assert page.headings == [
        "Table 1",
        "Table 2",
        "Table 3",
        "Table 3, mean ranks",
        "Figure 1",
        "Figure 1, expense",
        "Figure 1, counts",
        "The paper's claims",
    ]
    assert page.tags.count("table") == 7
    assert page.tags.count("svg") == 1
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert all(address.startswith("#") for address in page.addresses)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    # What is left are names of XML vocabularies, which nothing loads.
    names = re.findall(r"""(\w[\w:]*)=["']https?://""", text)
    assert len(names) == len(re.findall("https?://", text))
    assert all(name.startswith("xmlns") or name == "rdf:resource" for name in names)
    assert len(report.texts) == 7
    assert (report.folder / "claims.md").read_text() == report.texts[-1]
    for part in ("table1", "table2", "table3", "figure1"):
        assert (report.folder / part / "DONE").exists()
        assert any(t == (report.folder / part / f"{part}.md").read_text() for t in report.texts)
    for name in ("0.808", "10.05 (1.13)"):
        assert name in text


@pytest.mark.parametrize(
    ("artefact", "parts", "headings"),
    [
        ("table1", {"table1"}, ["Table 1"]),
        ("table2", {"table2"}, ["Table 2"]),
        ("table3", {"selection", "table3"}, ["Table 3", "Table 3, mean ranks"]),
        ("figure1", {"selection", "figure1"}, ["Figure 1", "Figure 1, expense", "Figure 1, counts"]),
    ],
)
def test_one_artefact_alone(tiny, tmp_path, artefact, parts, headings):
    report = reproduce(artefact, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == parts | {f"{artefact}.html"}
    assert Page((tmp_path / f"{artefact}.html").read_text()).headings == headings
    assert len(report.texts) == len([h for h in headings if h != "Figure 1"])


def test_table_3_and_the_figure_share_what_was_chosen(tiny, tmp_path, monkeypatch):
    reproduce("table3", out=tmp_path)
    monkeypatch.setattr("crcen.paper.reproduction.protocol._search", None)
    reproduce("figure1", out=tmp_path)


def test_the_default_folder_follows_the_settings(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [
        {},
        {"scoring": "f1"},
        {"scoring": "g_mean"},
        {"selection": "per_split"},
        {"quick": True},
        {"quick": True, "scoring": "f1"},
    ]
    folders = [reproduce("table2", **one).folder for one in given]
    assert len(set(folders)) == len(given)
    assert all(re.fullmatch(r"runs/(full|quick)-[0-9a-f]{8}", str(folder)) for folder in folders)
    assert reproduce("table2").folder == folders[0]
    assert reproduce("table2", scoring="weighted_log_loss").folder == folders[0]  # what the settings say anyway


def test_a_folder_with_other_settings_is_refused(tiny, tmp_path):
    reproduce("figure1", out=tmp_path)
    with pytest.raises(crcen.InvalidParameter, match=r"other settings \(scoring\)"):
        reproduce("figure1", out=tmp_path, scoring="f1")


def test_a_config_of_ones_own_replaces_entries(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[protocol]\nsplits = 3\nscoring = "f1"\n')
    settings = read_settings(quick=True, config=path)
    packaged = read_settings(quick=True)
    assert (settings["protocol"]["splits"], settings["protocol"]["scoring"]) == (3, "f1")
    assert settings["protocol"] | {"splits": 2, "scoring": "weighted_log_loss"} == packaged["protocol"]
    assert settings["table1"] == packaged["table1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[protocol\n", "cannot be read as TOML"),
        ("[protocol]\nsplit = 3\n", r"unknown entry in \[protocol\] \(split\): allowed are sets, splits"),
        ("[table4]\nruns = 3\n", r"unknown entry in \[table4\].*allowed are the sections table1"),
        ("runs = 3\n", "unknown entry"),
    ],
)
def test_a_config_that_means_nothing_is_refused(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(crcen.InvalidParameter, match=message):
        read_settings(quick=True, config=path)
    with pytest.raises(crcen.InvalidParameter, match="cannot be read"):
        read_settings(quick=True, config=tmp_path / "nowhere.toml")


def test_methods_are_chosen_by_name_and_the_extended_table_says_what_a_fit_takes(tiny, tmp_path):
    found = reproduce("table3", out=tmp_path / "run", methods="crcen, adaboost")
    ranks = found.texts[1]
    assert "AdaBoost" in ranks
    assert "RUSB" not in ranks
    assert "seconds a fit" in ranks
    assert "At most" not in ranks


@pytest.mark.parametrize("text", ["crcn", "", "crcen;mlp"])
def test_methods_that_do_not_exist_are_refused(tmp_path, text):
    with pytest.raises(crcen.InvalidParameter, match="there is no method"):
        reproduce("table3", out=tmp_path / "run", quick=True, methods=text)
    assert not (tmp_path / "run").exists()
