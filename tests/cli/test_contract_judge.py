"""Commands that judge a model of two and three classes: every option, the same JSON keys, certificates, comparisons."""

import json
import tomllib

import jsonschema
import numpy as np
import pandas as pd
import pytest
from test_contract_fit import LABELS, NOT_FOR_TEXT, options_of

import crcen
from crcen.report.page import certificate_schema

COSTS = {2: ";no;yes\nno;0;1\nyes;8;0\n", 3: ";fine;worn;broken;look\nfine;0;1;1;.3\nworn;5;0;1;.3\nbroken;9;9;0;.3\n"}


def draw(k, n, seed):
    """Rows with a softmax that is known; a positive amount, a day, a patient and a region."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)).round(4)
    logits = np.column_stack([np.full(n, 1.5), *(1.5 * X[:, i] for i in range(k - 1))])
    kind = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    columns = {"a": X[:, 0], "b": X[:, 1], "worth": rng.gamma(2.0, 5.0, n).round(2)}
    columns["day"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(n) * 10 // n, unit="D")
    columns |= {"patient": rng.integers(0, n // 3, n), "region": rng.choice(["north", "south"], n)}
    return pd.DataFrame({**columns, "times": rng.integers(1, 4, n), "state": np.array(LABELS[k])[kind]})


@pytest.fixture(scope="module", params=[2, 3], ids=["K=2", "K=3"])
def home(request, tmp_path_factory):
    """A folder with test.csv, scored rows with audits, costs.csv and a model of K classes."""
    k, folder = request.param, tmp_path_factory.mktemp(f"contract{request.param}")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-3, max_epochs=8, encoding="standard", n_members=1, cv=3)
    weights = dict(zip(LABELS[k], [1, 5, 9], strict=False))
    drop = ["worth", "day", "patient", "region", "times"]
    model = crcen.fit_table(draw(k, 900, 0), target="state", weighting=weights, drop=drop, estimator=search).model
    crcen.save(model, folder / "m.crcen")
    how = {"target": "state", "weighting": weights, "drop": drop, "estimator": search.set_params(l2=10.0)}
    crcen.fit_table(draw(k, 900, 0), **how, out=folder / "other.crcen")
    test = draw(k, 600, 1)
    test.to_csv(folder / "test.csv", index=False)
    test.drop(columns="state").to_csv(folder / "rows.csv", index=False)
    (folder / "costs.csv").write_text(COSTS[k])
    rows = crcen.predict_table(model, test, audit="30%", id=list(test)).frame
    rows.loc[rows["audit"] == 0, "state"] = None
    rows[[*test, "audit_probability"]].to_csv(folder / "audited.csv", index=False)
    return folder, k


SHARES = {2: "0.2", 3: "fine=0.4,worn=0.3,broken=0.3"}
READ = ("--separator", ",", "--encoding", "utf-8", "--decimal", ".", "--quote", '"', "--missing", "b=-200")
READ += ("--dates", "day-first", "--skip-rows", "0", "--rename-duplicates")
PRICES = [("--budget", "5"), ("--cost-ratio", "5"), ("--alpha", "1"), ("--lam", ".5")]
OPTIONS = {
    "predict": {
        "both": [
            (), ("--balanced",), ("--weighting", "{weights}"), ("--costs", "{home}/costs.csv"),
            ("--prevalence", "{shares}"), ("--prevalence", "auto"), ("--audit", "50"), ("--seed", "3", "--audit", "50"),
            ("--audit", "10%", "--audit-rule", "uniform"), ("--clusters", "patient"), ("--id", "a"), ("--all-columns",),
            ("--sort",), ("--safe-csv",), ("--reasons", "2"),
        ],
        "binary": [
            *PRICES, ("--top", "20"),
            ("--capacity", "9/day", "--time", "day"), ("--recall", ".8"), ("--precision", ".5"),
            ("--recall", ".6", "--confidence", ".9", "--held-out", "{home}/test.csv"), ("--review", "2,30"),
            ("--cost-column", "worth", "--alarm-cost", "3"),
        ],
    },
    "evaluate": {
        "both": [
            (), ("--resamples", "0"), ("--weighting", "{weights}"), ("--costs", "{home}/costs.csv"),
            ("--prevalence", "{shares}"), ("--prevalence", "auto"), ("--weight", "times"), ("--clusters", "patient"),
            ("--stratified",), ("--groups", "region"), ("--fail-on", "any"), ("--min-recall", ".01"),
            ("--min-precision", ".01"), ("--target", "state"), ("--balanced",),
        ],
        "binary": [
            *PRICES, ("--capacity", "50"),
            ("--recall", ".8"), ("--recall", ".6", "--confidence", ".9"), ("--precision", ".5"),
            ("--top", "50"), ("--review", "2,30"), ("--cost-column", "worth"),
            ("--cost-column", "worth", "--alarm-cost", "2"),
        ],
    },
    "report": {
        "both": [
            (), ("--groups", "region"), ("--weight", "times"), ("--clusters", "patient"), ("--prevalence", "{shares}"),
            ("--title", "A title"), ("--target", "state"),
        ],
        "binary": [("--review", "2,30")],
        "several": [("--weighting", "{weights}"), ("--costs", "{home}/costs.csv")],
    },
    "monitor": {
        "both": [
            (), ("--balanced",), ("--state", "{tmp}/watch.json"), ("--page", "{tmp}/watch.html"), ("--when", "May"),
            ("--weight", "times"), ("--clusters", "patient"), ("--false-alarm-rate", ".1"),
            ("--weighting", "{weights}"), ("--costs", "{home}/costs.csv"), ("--target", "state"),
            ("--delay", "2", "--cohort", "day", "--now", "2024-05-20", "--state", "{tmp}/delayed.json"),
        ],
        "binary": PRICES,
    },
    "plan": {
        "both": [
            (), ("--drift", ".5", "--power", ".9", "--level", ".01"), ("--recall-bound", ".2", "--confidence", ".9"),
            ("--cost-width", "200"), ("--recall-bound", ".2", "--audit-rule", "uniform", "--seed", "1"),
            ("--weighting", "{weights}"), ("--costs", "{home}/costs.csv"), ("--prevalence", "{shares}"),
            ("--balanced",), ("--clusters", "patient"),
        ],
        "binary": PRICES,
    },
}  # fmt: skip
# Options of these commands that other tests below give.
ELSEWHERE = {
    "predict": {"--out", "--append", "--default-action"},
    "evaluate": {"--audited"},
    "report": {"--out", "--audited", "--confidence", "--declaration", "--certificate"},
    "monitor": {"--audited", "--declaration"},
    "plan": set(),
}
STEP = "label bracket catches false_alarms expense interval verdict standard_deviations is_beyond_noise reason"
# The top-level keys of each command.
KEYS = {
    "predict": "rows alarms decided expected expected_cost expected_catches expected_false_alarms price goal chosen "
    "review prevalence audit notes unlike reasons path",
    "evaluate": "data target rows labels price counts decisions costs confusion cost_per_row cost_per_1000 habit "
    "saved_per_row classes accuracy balanced_accuracy g_mean macro_f1 macro_average_precision log_loss base_log_loss "
    "recall_bound missed_bound audited metrics key_equation expense prevalence notes unlike training_rows findings "
    "groups failures chosen review row_costs",
    "report": "path rows warnings findings notes review prevalence recall_bound missed_bound audited",
    "monitor": "data call is_alarm rows labelled held price decided alarm_share expected expected_in_training unlike "
    "drift_alarms labels false_alarm_rate declared notes state page",
    "plan": "data rows price goals power level confidence labels labels_by_goal audits audits_by_class uncertainty "
    "clusters sentences notes",
}


@pytest.fixture
def run(home, crcen_command, tmp_path):
    """Run a command on the test rows, or on others, with options."""
    folder, k = home
    words = {"home": folder, "tmp": tmp_path, "shares": SHARES[k]}
    words["weights"] = ",".join(f"{label}={w}" for label, w in zip(LABELS[k], (1, 3, 6), strict=False))

    def command(name, options, data="test.csv"):
        out = {"predict": ("--out", tmp_path / "s.csv"), "report": ("--out", tmp_path / "r.html")}.get(name, ())
        given = [str(one).format(**words) for one in options]
        return crcen_command(name, folder / "m.crcen", folder / data, *out, *given, "--json")

    return command


@pytest.fixture
def found(run):
    """The values of a command, with its keys."""

    def values(name, options, data="test.csv"):
        code, out, err = run(name, options, data)
        assert (code in (0, 3), err) == (True, ""), (options, err)
        assert list(json.loads(out)) == KEYS[name].split(), options
        assert all(list(step) == STEP.split() for step in json.loads(out).get("expense", []))
        return json.loads(out)

    return values


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_the_same_keys(run, found, home, name):
    both, binary, several = (OPTIONS[name].get(kind, []) for kind in ("both", "binary", "several"))
    for options in (*both, READ):
        found(name, options)
    for options, n_classes in [*((one, 2) for one in binary), *((one, 3) for one in several)]:
        if home[1] == n_classes:
            found(name, options)
            continue
        code, _, err = run(name, options)
        assert (code, len(err.strip().splitlines())) == (2, 1), (options, err)
        assert "two classes" in err or "must be left out" in err, (options, err)
        assert "costs=" not in err
    for option, value in NOT_FOR_TEXT.items():
        code, _, err = run(name, (option, value))
        assert (code, option in err) == (2, True), err
    used = {word for part in (*both, *binary, *several, READ) for word in part if word.startswith("--")}
    assert options_of(name) == {*used, *NOT_FOR_TEXT, *ELSEWHERE[name], "--json"} - {"--top"}


def test_options_that_do_not_apply_are_rejected(run, home):
    is_binary = home[1] == 2
    alone = f"--alarm-cost must {'go with --cost-column' if is_binary else 'be left out'}"
    wrong = [(name, ("--alarm-cost", 3), alone) for name in ("predict", "evaluate")]
    wrong += [("predict", ("--audit", audit), "--audit must be") for audit in ("0", "-3", "200%", "many")]
    wrong += [("monitor", ("--cohort", "day"), "--cohort and --now need --delay")]
    wrong += [("predict", ("--append",), "--append")]
    wrong += [("predict", words, "go with --audit") for words in (("--audit-rule", "uniform"), ("--seed", 3))]
    wrong += [("monitor", ("--delay", 2, "--cohort", "day", "--when", "May"), "--when must be left out with --cohort")]
    wrong += [("report", ("--weighting", "none"), "its page has a price slider")] * is_binary
    wrong += [
        ("plan", ("--level", 0.01, "--recall-bound", 0.5), "--level must go with --drift"),
        ("plan", ("--audit-rule", "uniform"), "--audit-rule must go with --recall-bound"),
        ("plan", ("--seed", 3), "--seed must go with --recall-bound"),
        ("plan", ("--confidence", 0.9), "--confidence must go with --recall-bound or --cost-width"),
        ("plan", ("--power", 0.9, "--cost-width", 100), "--power must go with --drift or --recall-bound"),
        ("plan", ("--power", 1), "--power must lie between 0 and 1: got 1."),
        ("report", ("--confidence", 0.9), "--confidence must go with --audited"),
    ]
    for name, options, said in wrong:
        code, _, err = run(name, options)
        assert (code in (1, 2), said in err) == (True, True), (options, err)


def test_resampled_intervals_are_omitted_without_resamples(found, home):
    resampled = "f1" if home[1] == 2 else "macro_f1"
    with_them, without = (found("evaluate", ("--resamples", n))["metrics"] for n in (50, 0))
    assert with_them[resampled]["low"] < with_them[resampled]["value"] < with_them[resampled]["high"]
    assert without[resampled]["low"] is None
    assert without["cost_per_1000"] == with_them["cost_per_1000"]
    assert without["cost_per_1000"]["low"] < without["cost_per_1000"]["high"]


def test_audited_labels(run, found, home):
    """Every command takes them; recall is bounded from below, and quiet rows without a label are not negative."""
    folder, k = home
    by = ("--audited", "audit_probability")
    truth = found("evaluate", ("--resamples", 0))
    judged = found("evaluate", (*by, "--resamples", 0), "audited.csv")
    recalls = {one["label"]: one["recall"]["value"] for one in truth["classes"]}
    bounds = {"yes": judged["recall_bound"]} if k == 2 else judged["recall_bound"]
    for label, bound in bounds.items():
        assert 0.0 < bound <= recalls[label], label
        # Positives that no audit found count in the interval too.
        interval = next(one["recall"] for one in judged["classes"] if one["label"] == label)
        assert interval["low"] <= bound
    assert judged["cost_per_1000"]["low"] < truth["cost_per_1000"]["value"] < judged["cost_per_1000"]["high"]
    status = {one["code"]: one["status"] for one in judged["findings"]}
    assert status["CRC011"] == "passed"
    assert "warning" not in [status[code] for code in ("CRC003", "CRC004", "CRC007")]
    for name in ("report", "monitor"):
        assert run(name, by, "audited.csv")[0] == 0
        found(name, by, "audited.csv")
    rows = pd.read_csv(folder / "audited.csv")
    is_known, drawn = rows["state"].notna(), rows["audit_probability"]
    is_out = ~is_known & (rows.index % 4 == 0)
    rows.assign(audit_probability=drawn.where(~is_out, 0.0)).to_csv(folder / "never.csv")
    rows[is_known].to_csv(folder / "labelled.csv")  # without the other rows, bounds on recall are too high
    left_out = f"{is_out.sum():,} rows without a label had no chance of an audit: left out"
    for name in ("evaluate", "report"):
        assert left_out in found(name, by, "never.csv")["notes"], name
        if k == 2:  # with three classes, too few rows are without an alarm
            code, _, refusal = run(name, by, "labelled.csv")
            assert (code, "keep all rows, with the labels of all drawn ones and of no others" in refusal) == (1, True)


def test_another_default_action_is_audited(run, found, home, tmp_path):
    """Rows decided for the named class are drawn, all others are checked, and the bounds of evaluate follow that."""
    folder, k = home
    named, option = LABELS[k][-1], "--default-action"
    for options in ((option, named), ("--audit", 40, option, "other" if k == 3 else named)):
        code, _, err = run("predict", options)
        assert (code, option in err) == (2, True)
    if k == 2:
        return
    assert run("predict", ("--audit", "30%", option, named.upper(), "--all-columns"))[0] == 0
    rows = pd.read_csv(tmp_path / "s.csv")
    is_quiet = rows["decision"] == named
    assert (rows.loc[~is_quiet, "audit_probability"] == 1.0).all()
    assert (rows.loc[is_quiet, "audit_probability"] < 1.0).all()
    assert 0 < rows.loc[is_quiet, "audit"].sum() < is_quiet.sum()
    rows.loc[rows["audit"] == 0, "state"] = None
    rows[[*pd.read_csv(folder / "test.csv"), "audit_probability"]].to_csv(folder / "named.csv", index=False)
    judged = found("evaluate", ("--audited", "audit_probability", "--resamples", 0), "named.csv")
    assert [judged["audited"][name] for name in ("quiet_rows", "unlabelled_alarms")] == [is_quiet.sum(), 0]
    recalls = {one["label"]: one["recall"]["value"] for one in found("evaluate", ())["classes"]}
    assert all(judged["recall_bound"][label] <= recalls[label] for label in LABELS[k])


def test_labels_of_alarms_only_are_a_finding(found, home):
    folder, k = home
    test = pd.read_csv(folder / "test.csv")
    decided = crcen.predict_table(folder / "m.crcen", test).frame["decision"]
    test.loc[decided == LABELS[k][0], "state"] = None
    test.to_csv(folder / "alarms.csv", index=False)
    for name in ("evaluate", "report"):
        finding = {one["code"]: one for one in found(name, (), "alarms.csv")["findings"]}["CRC011"]
        assert finding["status"] == "warning"
        assert "recall cannot be estimated" in finding["measured"]
    assert any("CRC011" in note for note in found("monitor", (), "alarms.csv")["notes"])


def test_the_same_seed_and_row_give_the_same_draw(run, home, tmp_path):
    folder, _ = home
    drawn = []
    test = pd.read_csv(folder / "test.csv")
    test.sample(frac=1.0, random_state=0).to_csv(folder / "shuffled.csv", index=False)
    for data, seed in (("test.csv", 5), ("shuffled.csv", 5), ("test.csv", 6)):
        assert run("predict", ("--audit", 60, "--seed", seed, "--all-columns"), data)[0] == 0
        drawn.append(pd.read_csv(tmp_path / "s.csv").sort_values(["a", "b"])["audit"].tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_plans_are_numbers_or_say_that_none_suffices(found):
    few, many, none = (found("plan", ("--drift", drift)) for drift in (1.0, 0.5, 0.001))
    assert 0 < few["labels"] < (many["labels"] or np.inf)
    assert none["labels"] is None
    assert "no number of labels suffices" in none["sentences"][0]
    assert found("plan", ("--recall-bound", 0.3))["audits"] > 0
    assert found("plan", ("--recall-bound", 0.999))["audits"] is None


def test_copies_of_rows_count_as_one_cluster(answer, home, tmp_path):
    """Each row four times gives the bounds and p-values of the rows once with --clusters, and narrower ones without."""
    folder, k = home
    model, once = folder / "m.crcen", pd.read_csv(folder / "test.csv").assign(case=np.arange(600))
    once.to_csv(tmp_path / "1.csv", index=False)
    pd.concat([once] * 4).to_csv(tmp_path / "4.csv", index=False)
    of = "[yes]" if k == 2 else "[broken]"
    texts = (f"recall{of} >= 0.3", f"precision{of} >= 0.2", "cost per row <= 3", "key equation", "groups")
    required = ["--groups", "region", *(part for text in texts for part in ("--require", text))]
    numbers, widths, needed = [], [], []
    for n, by in ((1, ()), (4, ("--clusters", "case")), (4, ())):
        rows, place = tmp_path / f"{n}.csv", tmp_path / f"{len(needed)}"
        declared = answer("declare", model, *required, "--rows", rows, *by, "--out", f"{place}.toml")
        how = ("--model", model, "--out", f"{place}.html", "--json-out", f"{place}.json", *by)
        certified = answer("certify", f"{place}.toml", rows, *how, codes=[0, 3])
        jsonschema.validate(certified, certificate_schema())
        assert certified["data"]["clusters"] == ({"column": "case", "number": 600} if by else None)
        assert answer("verify", f"{place}.json", "--data", rows, "--declaration", f"{place}.toml")["valid"]
        parts = [part for one in certified["criteria"][:3] for part in (one, *one["groups"])]
        widths.append([one["interval"]["high"] - one["interval"]["low"] for one in parts])
        compared = answer("compare", model, folder / "other.crcen", rows, *by, "--groups", "region")
        saved = [*compared["saving_per_1000"].values(), *compared["classes"][0]["recall"]["difference"].values()]
        judged = answer("evaluate", model, rows, *by, "--resamples", 0)
        paid = [end or 0.0 for one in judged["expense"] for end in one["interval"]]
        numbers.append(
            [
                *saved,
                *paid,
                *judged["cost_per_1000"].values(),
                *(one[name] for one in parts for name in ("bound", "p_value_pass")),
            ]
        )
        planned = answer("plan", model, rows, *by, "--drift", 0.8, "--cost-width", 900)["labels_by_goal"].values()
        planned = [number or 0 for one in planned for number in one.values()]
        needed.append([*(one.get("labels_needed", 0) for one in declared["criteria"]), *planned])
    np.testing.assert_allclose(numbers[1], numbers[0], rtol=0.02, atol=0.02)
    np.testing.assert_allclose(widths[1], widths[0], rtol=0.02)
    np.testing.assert_allclose(np.divide(widths[2], widths[0]), 0.5, atol=0.1)
    np.testing.assert_allclose(needed[1], np.multiply(needed[0], 4), rtol=0.15)
    np.testing.assert_allclose(needed[2], needed[0], rtol=0.02)


def test_several_models_side_by_side(home, printed, refusal, tmp_path):
    folder, _ = home
    model, page = folder / "m.crcen", tmp_path / "r.html"
    printed("report", model, model, folder / "test.csv", "--out", page)
    assert page.read_text().count('<th scope="row">m.crcen</th>') == 2
    assert "needs a model and a table" in refusal("report", model, "--out", page, code=2)
    refusal("report", model, model, folder / "test.csv", "--out", model)


REQUIRE = {  # the last one is impossible
    2: ["recall >= 0.05", "cost per 1000 <= 4000", "key equation", "precision >= 0.99"],
    3: ["recall[broken] >= 0.05", "cost per row <= 20", "key equation", "precision[broken] >= 0.99"],
}


def test_from_a_declaration_to_a_verified_certificate(answer, printed, refusal, crcen_command, home, tmp_path):
    """A criterion that fails exits with 3, and its certificate verifies."""
    folder, k = home
    model, test, rows = (folder / name for name in ("m.crcen", "test.csv", "rows.csv"))
    declaration, page, certificate, key = (tmp_path / name for name in ("d.toml", "c.html", "c.json", "key.pem"))
    required = [part for text in REQUIRE[k] for part in ("--require", text)]
    how = ("certify", declaration, test, "--model", model, "--out", page, "--json-out", certificate)
    out = printed("declare", model, *required, "--groups", "region", "--rows", rows, "--out", declaration)
    assert out.startswith("4 criteria declared")
    price = tomllib.loads(declaration.read_text())["model"]["price"]
    assert price.startswith("a miss costs 5 false alarms" if k == 2 else "weights of mistakes: broken ")
    printed("keygen", "--out", key)
    found = answer(*how, "--sign", key, codes=[3])
    assert [one["criterion"] for one in found["criteria"]] == REQUIRE[k]
    assert {part["group"] for part in found["criteria"][0]["groups"]} == {"north", "south"}
    assert json.loads(certificate.read_text()) == found
    report = ("--declaration", declaration, "--certificate", certificate, "--out", tmp_path / "r.html")
    assert answer("report", model, test, *report, codes=[0, 3])["rows"] == 600
    assert answer("monitor", model, test, "--declaration", declaration, codes=[0, 3])["declared"]
    together = ("--model", model, "--data", test, "--public-key", f"{key}.pub", "--declaration", declaration)
    assert "verdict is fail" in printed("verify", certificate, *together, "--page", page)
    assert answer("verify", certificate, "--data", rows, codes=[1])["valid"] is False
    certificate.write_text(certificate.read_text().replace('"pass"', '"fail"', 1))
    assert answer("verify", certificate, codes=[1])["valid"] is False
    assert "--again" in refusal(*how)
    code, out, _ = crcen_command(*how, "--again")
    assert (code, "repeated" in out, "does not hold" in out) == (3, True, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("declare|{home}/m.crcen|--require|beauty >= 1|--out|{out}", "has a test"),
        ("declare|{home}/m.crcen|--require|unlike|--groups|sex|--rows|{home}/rows.csv|--out|{out}", "--groups"),
        ("certify|{home}/rows.csv|{home}/test.csv|--model|{home}/m.crcen|--out|{out}", "is not a declaration"),
        ("verify|{home}/m.crcen", "is not a certificate"),
        ("verify|{home}/m.crcen|--separator|;", "must go with --data"),
        ("declare|{home}/m.crcen|--require|unlike|--separator|;|--out|{out}", "must go with --rows"),
        ("verify|{home}/rows.csv", "is not a certificate"),
        ("compare|{home}/m.crcen|{home}/other.crcen|{home}/rows.csv", "must be a column"),
        ("compare|{home}/test.csv|--probability-old|a|--probability-new|a|--target|state", "needs a price"),
        ("compare|{home}/test.csv|--probability-old|a|--target|state", "columns --probability-old and"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(refusal, home, tmp_path, arguments, sentence):
    assert sentence in refusal(*(part.format(home=home[0], out=tmp_path / "out") for part in arguments.split("|")))
    assert not list(tmp_path.iterdir())


def test_compare_prints_the_verdict_first_and_continues(answer, printed, crcen_command, home, tmp_path):
    call = ("compare", *(home[0] / name for name in ("m.crcen", "other.crcen", "test.csv")))
    assert printed(*call, "--groups", "region").split()[0] in ("The", "Undecided:")
    found = answer(*call, "--state", tmp_path / "s.json")
    assert (found["verdict"] in ("new", "old", "undecided"), found["rows"]) == (True, 600)
    assert crcen_command(*call, "--state", tmp_path / "s.json")[0] == (found["verdict"] == "undecided")


def test_every_option_of_compare_declare_certify_and_verify(crcen_command, home, tmp_path):
    folder, k = home
    weights = ",".join(f"{label}={w}" for label, w in zip(LABELS[k], (1, 3, 6), strict=False))
    calls = [(), READ, ("--target", "state"), ("--confidence", ".9"), ("--groups", "region"), ("--balanced",)]
    calls += [("--weighting", weights), ("--costs", folder / "costs.csv"), ("--state", tmp_path / "state.json")]
    calls += [("--audited", "audit_probability"), ("--clusters", "patient")]
    scored = crcen.predict_table(folder / "m.crcen", folder / "test.csv", id=["state"]).frame
    scored.to_csv(tmp_path / "scored.csv", index=False)
    keys = set()
    for options in calls:
        data = folder / ("audited.csv" if options[:1] == ("--audited",) else "test.csv")
        code, out, err = crcen_command("compare", folder / "m.crcen", folder / "other.crcen", data, *options, "--json")
        assert (code in (0, 3), err) == (True, ""), (options, err)
        keys.add(tuple(json.loads(out)))
    columns = ["probability"] if k == 2 else [f"{label}=probability_{label}" for label in LABELS[k]]
    given = [part for one in columns for part in ("--probability-old", one, "--probability-new", one)]
    given += ["--target", "state", "--json", *(["--positive", "yes"] if k == 2 else [])]
    for price in PRICES:
        code, out, err = crcen_command("compare", tmp_path / "scored.csv", *given, *price)
        is_possible = k == 2 and price[0] != "--alpha"  # which needs the class counts of training
        assert (code in (0, 3)) == is_possible, (price, err)
        keys |= {tuple(json.loads(out))} if is_possible else set()
    assert len(keys) == 1
    (tmp_path / "about.toml").write_text('purpose = "triage"\n')
    required = ("declare", folder / "m.crcen", "--require", "key equation", "--rows", folder / "rows.csv", *READ)
    more = ("--confidence", ".9", "--description", tmp_path / "about.toml", "--target", "state", "--json")
    more += ("--clusters", "patient")
    code, out, err = crcen_command(*required, *more, "--out", tmp_path / "d.toml")
    assert (code, "key equation" in out) == (0, True), err
    written = ("--out", tmp_path / "c.html", "--json-out", tmp_path / "c.json", "--clusters", "patient")
    certify = ("certify", tmp_path / "d.toml", folder / "test.csv", "--model", folder / "m.crcen", *written)
    verify = ("verify", tmp_path / "c.json", "--data", folder / "test.csv")
    for command in (certify, verify):
        for option in NOT_FOR_TEXT.items():
            code, _, err = crcen_command(*command, *option)
            assert (code, option[0] in err) == (2, True), err
        code, _, err = crcen_command(*command, *READ)
        assert (code in (0, 3), err) == (True, "")
    # Options that the tests of certificates give.
    signed = ("--groups", "--sign", "--again", "--model", "--public-key", "--declaration", "--page", "--clusters")
    for name, words in {"declare": (*required, *more, "--out"), "certify": certify, "verify": verify}.items():
        assert options_of(name) <= {*map(str, words), *READ, *NOT_FOR_TEXT, *signed, "--json"}, name
