"""The application: access, errors of the command line, nothing left behind, and the workflow in a real browser."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pandas as pd
import pytest
from serve_tables import binary_table, class_table, until

import crcen
from crcen.serve.app import Job


def wait(client, project):
    def ended():
        found = client.get(f"/api/projects/{project}").json()
        return found if found["job"]["status"] != "running" else None

    found = until(ended, 200)
    assert found, "the step did not end"
    return found


def sessions_of(server):
    """Processes of steps: members of sessions whose leader is a child of the server."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (fields[0], int(fields[1]), int(fields[3]))
    children = [pid for pid, (_, parent, session) in found.items() if parent == server and session == pid]
    leaders = {pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    return {pid for pid, (state, _, session) in found.items() if session in leaders and state != "Z"}


def gone(pids):
    return all(not Path(f"/proc/{pid}").exists() or ") Z" in Path(f"/proc/{pid}/stat").read_text() for pid in pids)


@pytest.fixture
def app(start, tmp_path):
    """A server with its own folder for temporary files, and a client with the token."""
    scratch, saved = tmp_path / "scratch", tmp_path / "saved"
    scratch.mkdir()
    saved.mkdir()
    server = start("app", "--no-browser", "--folder", saved, env={"TMPDIR": str(scratch)})
    address, _, token = server.address.partition("/?token=")
    with httpx.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=30) as client:
        server.client, server.base, server.token, server.scratch, server.saved = client, address, token, scratch, saved
        yield server


@pytest.fixture
def project(app):
    """A project with a table of 700 rows."""
    content = binary_table().to_csv(index=False)
    found = app.client.post("/api/projects?name=cases.csv", content=content).json()
    assert found["job"]["status"] == "running"
    return found["id"]


def test_requests_without_token_or_from_other_pages_get_403(app):
    for path in ("/", "/api/saved", "/api/projects/x", "/nothing"):
        for token in ("", "?token=wrong"):
            assert httpx.get(app.base + path + token).status_code == 403
    assert (app.client.get("/").status_code, httpx.get(f"{app.base}/?token={app.token}").status_code) == (200, 200)
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"host": "evil.example"}):
        assert app.client.get("/api/saved", headers=headers).status_code == 403
        assert app.client.post("/api/projects?name=a.csv", content="a", headers=headers).status_code == 403
    assert app.client.get("/api/saved", headers={"origin": app.base}).status_code == 200
    assert "default-src 'none'" in app.client.get("/").headers["content-security-policy"]
    assert app.base.startswith("http://127.0.0.1:")


def test_errors_are_those_of_the_command_line(app, project, tmp_path, crcen_command):
    wait(app.client, project)
    (tmp_path / "one.csv").write_text("a,y\n1,no\n2,no\n")
    one = app.client.post("/api/projects?name=one.csv", content="a,y\n1,no\n2,no\n").json()["id"]
    wait(app.client, one)
    app.client.post(f"/api/projects/{one}/fit", json={"target": "y", "effort": "quick"})
    failed = wait(app.client, one)
    code, _, err = crcen_command("fit", tmp_path / "one.csv", "--target", "y", "--quick", "--out", tmp_path / "m.crcen")
    assert (code, failed["job"]["status"], "fit" in failed["results"]) == (1, "failed", False)
    assert failed["job"]["error"] == err.removeprefix("crcen: ").strip()
    for path, body, sentence in (
        ("fit", {}, "choose the target first"),
        ("fit", {"target": "fraud", "price": "budget", "value": "many"}, "must be a number: got 'many'"),
        ("fit", {"target": "fraud", "time_limit": "0"}, "from 1 to 86,400 seconds"),
        ("fit", {"target": "fraud", "price": "love"}, "price must be"),
        ("fit", {"target": "fraud", "price": "capacity", "value": "nan"}, "must be a whole number"),
        ("fit", {"target": "fraud", "price": "costs", "value": {"labels": ["a"], "costs": [[1, 2]]}}, "have 1 rows"),
        ("save", {"name": "../evil"}, "the name must be"),
    ):
        answer = app.client.post(f"/api/projects/{project}/{path}", json=body)
        assert (answer.status_code, sentence in answer.json()["error"]) == (422, True), answer.text
    for path, content, status in (("?name=", "a", 422), ("?name=a.csv", "", 422), ("/unknown/fit", "{}", 404)):
        assert app.client.post(f"/api/projects{path}", content=content).status_code == status
    long = (b" " * 100_000 for _ in range(11))  # a body of several parts states no length
    assert app.client.post(f"/api/projects/{project}/fit", content=long).status_code == 413
    assert app.client.post("/api/saved/..%2Fsecret").status_code == 404
    assert app.client.get(f"/api/projects/{project}/report").status_code == 404
    damaged = app.client.post("/api/projects?name=x.xlsx", content=b"not a workbook").json()["id"]
    found = wait(app.client, damaged)
    assert (found["job"]["status"], "Traceback" in json.dumps(found)) == ("failed", False)


def test_step_beyond_its_limit_is_ended(tmp_path):
    binary_table().to_csv(tmp_path / "cases.csv", index=False)
    options = {"data": str(tmp_path / "cases.csv"), "target": "fraud"}
    job = Job("look", options, tmp_path / "job", pytest.fail, limit=0.01)
    assert until(lambda: job.status == "failed" and not (tmp_path / "job").exists())
    assert "stopped after 0.01 seconds" in job.to_dict()["error"]


def test_prices_of_several_classes(app):
    content = class_table(400).to_csv(index=False)
    project = app.client.post("/api/projects?name=cases.csv", content=content).json()["id"]
    wait(app.client, project)
    labels, costs = ["broken", "fine", "worn"], [["0", "50", "5"], ["1", "0", "0,5"], ["2", "10", "0"]]
    for price, value, option in (
        ("weights", {"broken": "5", "worn": "2", "fine": "1"}, "--weighting broken=5,worn=2,fine=1"),
        ("costs", {"labels": labels, "costs": costs}, "--costs costs.csv"),
    ):
        options = {"target": "state", "price": price, "value": value, "effort": "quick"}
        app.client.post(f"/api/projects/{project}/fit", json=options)
        found = wait(app.client, project)
        assert found["job"]["status"] == "done", found["job"]
        assert f"crcen fit cases.csv --target state {option} --quick" in found["commands"]["fit"]
    # The shown command writes the same costs, and the model decides by them.
    subprocess.run(["sh", "-c", found["commands"]["fit"].partition(" && ")[0]], check=True, cwd=app.saved)
    (app.saved / "m.crcen").write_bytes(app.client.get(f"/api/projects/{project}/model").content)
    expected = [[0, 50, 5], [1, 0, 0.5], [2, 10, 0]]
    assert pd.read_csv(app.saved / "costs.csv", index_col="state")[labels].loc[labels].to_numpy().tolist() == expected
    assert crcen.load(app.saved / "m.crcen").costs_.costs.tolist() == expected


def test_decimal_comma_and_equivalent_command(app, project):
    wait(app.client, project)
    options = {"target": "fraud", "positive": "yes", "price": "budget", "value": "2,5", "effort": "quick"}
    options["drop"] = ["since"]
    app.client.post(f"/api/projects/{project}/fit", json=options)
    busy = app.client.post(f"/api/projects/{project}/fit", json=options)
    assert (busy.status_code, "a step is running" in busy.json()["error"]) == (409, True)
    found = wait(app.client, project)
    assert found["commands"]["fit"] == (
        "crcen fit cases.csv --target fraud --positive yes --budget 2.5 --drop since --quick "
        "--out model.crcen --report report.html"
    )
    assert found["results"]["fit"]["values"]["price"]["cost_ratio"] == pytest.approx(2.5)
    rows = binary_table(60, seed=3).drop(columns="fraud").assign(code=[f"{i:03d}" for i in range(60)])
    content = rows.to_csv(index=False, sep=";", decimal=",")
    app.client.post(f"/api/projects/{project}/score?name=neu.csv", content=content)
    assert wait(app.client, project)["job"]["status"] == "done"
    page = app.client.get(f"/api/projects/{project}/rows?sort=probability&order=down").json()
    column = page["columns"].index("probability")
    p = [row["cells"][column] for row in page["rows"]]
    assert (p, {type(one) for one in p}) == (sorted(p, reverse=True), {float})
    assert page["rows"][0]["cells"][page["columns"].index("code")] == f"{page['rows'][0]['row']:03d}"
    found = app.client.get(f"/api/projects/{project}/rows?search=nl&decision=no").json()
    assert 0 < found["found"] < 60
    comma = app.client.get(f"/api/projects/{project}/scored?kind=comma").text.splitlines()
    assert comma[0].count(";") == len(page["columns"]) - 1
    assert app.client.get(f"/api/projects/{project}/scored?kind=xlsx").content[:2] == b"PK"
    assert app.client.get(f"/api/projects/{project}/scored?kind=pdf").status_code == 422


@pytest.fixture
def long_project(app):
    """A project whose fit lasts about a minute."""
    content = binary_table(30_000).to_csv(index=False)
    return app.client.post("/api/projects?name=many.csv", content=content).json()["id"]


def started(app, project, seconds):
    """Start a long fit; its processes after so many seconds."""
    wait(app.client, project)
    app.client.post(f"/api/projects/{project}/fit", json={"target": "fraud", "effort": "best", "time_limit": 600})
    assert until(lambda: sessions_of(app.popen.pid))
    time.sleep(seconds)
    running = sessions_of(app.popen.pid)
    assert running, app.client.get(f"/api/projects/{project}").json()["job"]
    return running


def test_cancelled_fit_leaves_nothing(app, project, long_project):
    wait(app.client, project)
    wait(app.client, long_project)
    before = sorted(str(one) for one in app.scratch.rglob("*"))
    running = started(app, long_project, 4.0)
    found = app.client.post(f"/api/projects/{long_project}/cancel").json()
    assert found["job"]["status"] == "cancelled"
    assert until(lambda: gone(running))
    assert sorted(str(one) for one in app.scratch.rglob("*")) == before
    app.client.post(f"/api/projects/{project}/fit", json={"target": "fraud", "effort": "quick"})
    assert wait(app.client, project)["job"]["status"] == "done"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ended_server_keeps_saved_models_and_leaves_nothing_else(app, project, long_project, number):
    wait(app.client, project)
    app.client.post(f"/api/projects/{project}/fit", json={"target": "fraud", "effort": "quick"})
    wait(app.client, project)
    saved = app.client.post(f"/api/projects/{project}/save", json={"name": "my model"}).json()["saved"]
    assert app.client.post(f"/api/projects/{project}/save", json={"name": "my model"}).status_code == 200
    running = started(app, long_project, 2.0)
    app.end(number)
    assert until(lambda: gone(running))
    assert until(lambda: not list(app.scratch.iterdir()))
    assert (os.listdir(app.saved), Path(saved).read_bytes()[:11]) == (["my model.crcen"], b"crcen model")


def test_saved_model_can_be_opened_again(app, models):
    (app.saved / "fraud.crcen").write_bytes(models["fraud"].read_bytes())
    assert app.client.get("/api/saved").json()["models"] == ["fraud.crcen"]
    found = app.client.post("/api/saved/fraud.crcen").json()
    content = binary_table(300, seed=5).to_csv(index=False)
    for _ in range(2):
        app.client.post(f"/api/projects/{found['id']}/monitor?name=may.csv", content=content)
        state = wait(app.client, found["id"])
    assert state["job"]["status"] == "failed"  # the same labels twice
    assert "counted before" in state["job"]["error"]
    assert state["results"]["monitor"]["values"]["labelled"] == 300
    assert (app.saved / "fraud.monitor.json").exists()
    page = app.client.get(f"/api/projects/{found['id']}/monitor")
    policy = page.headers["content-security-policy"]
    assert ("sandbox" in policy, "default-src 'none'" in policy, "<svg" in page.text) == (False, True, True)


def choose(browser, selector, value):
    browser.run(f"document.querySelector('{selector}').value = '{value}'")
    browser.run(f"document.querySelector('{selector}').dispatchEvent(new Event('change'))")


def shown(browser, selector, seconds=120):
    is_shown = f"!document.querySelector('{selector}').hidden"
    browser.wait_until(f"{is_shown} || !document.querySelector('#message').hidden", seconds)
    assert browser.run("document.querySelector('#message').textContent") == ""


UNLABELLED = """[...document.querySelectorAll('input, select, button, iframe, progress')].filter((one) =>
  !(one.labels && one.labels.length) && !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby') &&
  !one.textContent.trim() && !one.title).map((one) => one.outerHTML)"""


@pytest.mark.parametrize("kind", ["binary csv", "classes xlsx"])
def test_from_file_to_scored_rows(start, chromium, tmp_path, kind):
    (tmp_path / "saved").mkdir()
    target, suffix = ("fraud", "csv") if kind == "binary csv" else ("state", "xlsx")
    make = binary_table if kind == "binary csv" else class_table
    table, new = make(), make(120, seed=8).drop(columns=target)
    for frame, name in ((table, "cases"), (new, "new")):
        write = frame.to_csv if suffix == "csv" else frame.to_excel
        write(tmp_path / f"{name}.{suffix}", index=False)
    price, first = "--positive yes --budget 12.5", ""
    if kind != "binary csv":
        price, rows = "--costs costs.csv", "state,broken,worn,fine broken,0,2.5,1 worn,1,0,1 fine,1,1,0"
        first = f"printf '%s\\n' {rows} > costs.csv && "
    server = start("app", "--no-browser", "--folder", tmp_path / "saved")
    browser = chromium
    browser.open(server.address)
    browser.choose_file("#table-file", tmp_path / f"cases.{suffix}")
    shown(browser, "#step-goal")
    assert browser.run("document.querySelectorAll('#columns tbody tr').length") == 6
    choose(browser, "#target", target)
    shown(browser, "#classes")
    if kind == "binary csv":
        assert browser.run("document.querySelector('#positive').value") == "yes"
        browser.type_over("#value-budget", "12,5")
    else:
        assert browser.run("document.querySelector('#positive').value") == ""
        browser.type_over("#weight-0", "5")
        browser.type_over("#cost-0-1", "2,5")
        assert browser.run("document.querySelector('#classes-costs').checked")
    choose(browser, "#effort", "quick")
    browser.run("document.querySelector('#fit').focus()")
    browser.press("Enter")
    shown(browser, "#step-result")
    assert browser.run("document.activeElement.id") == "result-title"
    assert browser.run("document.querySelectorAll('#class-table tbody tr').length") == table[target].nunique()
    browser.run("document.querySelector('#report-button').click()")
    browser.choose_file("#score-file", tmp_path / f"new.{suffix}")
    browser.wait_until("document.querySelectorAll('#rows tbody tr').length === 50", 120)
    browser.run("document.querySelector('#rows tbody button').click()")
    browser.wait_until("document.querySelectorAll('#reasons li').length === 5", 60)
    browser.type_over("#save-name", "checked model")
    browser.run("document.querySelector('#save-form button').click()")
    browser.wait_until("document.querySelector('#saved-place').textContent.startsWith('Saved as')")
    browser.choose_file("#monitor-file", tmp_path / f"new.{suffix}")
    shown(browser, "#monitored")
    assert browser.run("[...document.querySelectorAll('pre.command[data-step]')].map((one) => one.textContent)") == [
        f"crcen look cases.{suffix} --target {target}",
        f"{first}crcen fit cases.{suffix} --target {target} {price} --quick --out model.crcen --report report.html",
        f"crcen predict model.crcen new.{suffix} --out scored.csv --all-columns",
        f"cp model.crcen '{tmp_path / 'saved' / 'checked model.crcen'}'",
        f"crcen monitor 'checked model.crcen' new.{suffix} --state 'checked model.monitor.json' --page monitor.html",
    ]
    # What the page shows is what predict_table gives with the saved model.
    wanted = crcen.predict_table(tmp_path / "saved" / "checked model.crcen", tmp_path / f"new.{suffix}").frame
    link = browser.run("document.querySelector('#get-csv').href")
    text = browser.run(f"fetch('{link}').then((answer) => answer.text())")
    (tmp_path / "got.csv").write_text(text)
    got = pd.read_csv(tmp_path / "got.csv")
    assert got["decision"].tolist() == wanted["decision"].tolist()
    for column in (one for one in wanted if one.startswith("probability")):
        assert got[column].tolist() == pytest.approx(wanted[column].tolist(), rel=1e-9)
    assert browser.run(UNLABELLED) == []
    for width in (390, 1280):
        browser.resize(width, 900)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    # A second tab and a reload show the same project.
    identifier = browser.run("location.hash")
    requests, troubles = browser.requests(), browser.troubles()
    browser.open("about:blank")
    browser.open(server.address + identifier)
    browser.wait_until("document.querySelectorAll('#rows tbody tr').length === 50", 60)
    assert troubles + browser.troubles() == []
    local = server.address.partition("/?")[0]
    assert [one for one in requests + browser.requests() if not one.startswith((local, "data:", "about:"))] == []


def test_cancel_and_messages(start, chromium, tmp_path):
    binary_table().to_csv(tmp_path / "cases.csv", index=False)
    (tmp_path / "empty.csv").write_text("a,b\n")
    server = start("app", "--no-browser", "--folder", tmp_path)
    browser = chromium
    browser.open(server.address, 390, 844, dark=True)
    browser.choose_file("#table-file", tmp_path / "empty.csv")
    browser.wait_until("!document.querySelector('#message').hidden", 60)
    assert browser.run("document.querySelector('#message').textContent").endswith(".")
    browser.choose_file("#table-file", tmp_path / "cases.csv")
    shown(browser, "#step-goal")
    choose(browser, "#target", "fraud")
    shown(browser, "#classes")
    browser.run("document.querySelector('#fit').click()")
    browser.wait_until("!document.querySelector('#progress').hidden", 20)
    browser.wait_until("document.querySelector('#bar').hasAttribute('value')", 60)
    browser.run("document.querySelector('#cancel').click()")
    browser.wait_until("document.querySelector('#message').textContent.startsWith('The step was cancelled')", 30)
    assert browser.run("document.querySelector('#step-result').hidden")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(18, 22, 27)"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
