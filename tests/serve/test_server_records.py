"""Decision log, audits, labels for the monitor, metrics, reload and server processes."""

import concurrent.futures
import json
import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from serve_tables import ROW, binary_table, both_models, class_table, client_of, records, until

from crcen.exceptions import DataUnavailable
from crcen.serve.decision_log import DecisionLog


def lines(path):
    text = path.read_text()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def predicted(client, frame, target):
    """Send rows; labels by identifier, and the predictions."""
    found = client.post("/predict", json=records(frame.drop(columns=target))).json()["predictions"]
    return dict(zip((one["id"] for one in found), frame[target], strict=True)), found


def test_log_holds_every_decision(models, tmp_path):
    log = tmp_path / "decisions.jsonl"
    rows = records(binary_table(20, seed=1).drop(columns="fraud"))
    client = client_of(models["fraud"], log=log, id="amount")
    found = client.post("/predict?budget=5", json=rows).json()
    logged = lines(log)
    assert [one["id"] for one in logged] == [str(row["amount"]) for row in rows]
    shared = {"price": {"cost_ratio": 5.0}, "version": found["version"]}
    for one, answer in zip(logged, found["predictions"], strict=True):
        expected = shared | {name: answer[name] for name in ("probability", "decision")}
        assert {name: one[name] for name in expected} == expected
        assert (len(one["input_hash"]), "inputs" in one) == (16, False)
    with_inputs = client_of(models["fraud"], log=log, log_inputs=True)
    assert with_inputs.post("/predict", json=rows[0]).status_code == 200
    assert lines(log)[-1]["inputs"] == rows[0]


def test_log_is_rotated_by_size_and_repaired(tmp_path):
    path = tmp_path / "log.jsonl"
    log = DecisionLog(path, 2_000)
    other = DecisionLog(path, 2_000)  # as another process would open it
    for i in range(60):
        (log, other)[i % 2].write([f"row {i}"], [{"decision": "x" * 50}])
    files = sorted(tmp_path.glob("log*.jsonl"))
    assert len(files) > 2
    assert all(file.stat().st_size <= 2_000 for file in files)
    ordered = sorted(files, key=lambda f: (f == path, f))
    assert [one["id"] for file in ordered for one in lines(file)] == [f"row {i}" for i in range(60)]
    assert set(log.find(["row 3", "row 59", "none"])[0]) == {"row 3", "row 59"}
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id": "cut", "ti')
    DecisionLog(path, 2_000).write(["new"], [{}])
    assert path.read_bytes().startswith(whole)
    assert [one["id"] for one in lines(path)][-1] == "new"
    odd = ['", "time": "', '"', "\\", "é\u2028", ""]
    log.write(odd, [{"n": i} for i in range(len(odd))])
    assert {one: entry["n"] for one, entry in log.find(odd)[0].items()} == dict(zip(odd, range(5), strict=True))


def test_many_threads_write_complete_lines(tmp_path):
    log = DecisionLog(tmp_path / "log.jsonl", 20_000)
    ids = [[f"{i}-{j}" for j in range(50)] for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda own: [log.write([one], [{"x": "y" * 30}]) for one in own], ids))
    found = [one["id"] for file in tmp_path.glob("log*.jsonl") for one in lines(file)]
    assert sorted(found) == sorted(one for own in ids for one in own)
    assert not list(tmp_path.glob("*.lock"))
    with pytest.raises(DataUnavailable, match="cannot be written: No such file"):
        DecisionLog(tmp_path / "missing" / "log.jsonl", 20_000)
    assert not (tmp_path / "missing").exists()


@both_models
def test_audits_have_the_stated_share(models, tmp_path, name, table, target):
    options = {"log": tmp_path / "log.jsonl", "audit": 0.1}
    client = client_of(models[name], **options)
    rows = records(table(3000, seed=2).drop(columns=target))
    found = client.post("/predict", json=rows).json()["predictions"]
    e = np.array([one["audit_probability"] for one in found])
    drawn = np.array([one["audit"] for one in found])
    default = {"fraud": "no", "state": "fine"}[name]
    quiet = np.array([one["decision"] == default for one in found])
    assert ((e == 1) & drawn)[~quiet].all()
    assert ((e[quiet] >= 0.0699) & (e[quiet] <= 1)).all()
    assert e[quiet].mean() == pytest.approx(0.1, abs=0.015)
    assert abs((drawn - e)[quiet].sum()) < 4 * np.sqrt((e * (1 - e))[quiet].sum())
    if name == "fraud":  # rows close to the threshold are drawn more often
        p = np.array([one["probability"] for one in found])[quiet]
        assert e[quiet][p > np.quantile(p, 0.9)].mean() > 1.2 * e[quiet][p < np.quantile(p, 0.1)].mean()
    again = [client.post("/predict", json=row).json()["audit"] for row in rows[:40]]
    assert again == drawn[:40].tolist()  # the same seed and row give the same draw
    other = client_of(models[name], **options, seed=1).post("/predict", json=rows).json()["predictions"]
    assert [one["audit"] for one in other] != drawn.tolist()
    assert lines(tmp_path / "log.jsonl")[0]["audit_probability"] == e[0]


def test_default_action_is_no_alarm(models, tmp_path, crcen_command):
    log = tmp_path / "log.jsonl"
    client = client_of(models["state"], log=log, audit=0.1, default_action="broken")
    rows = records(class_table(400, seed=2).drop(columns="state"))
    found = client.post("/predict", json=rows).json()["predictions"]
    assert {one["audit_probability"] == 1.0 for one in found if one["decision"] != "broken"} == {True}
    assert {one["audit_probability"] for one in found if one["decision"] == "broken"} == {0.1}
    n_alarms = sum(one["decision"] != "broken" for one in found)
    assert f'crcen_alarms_total{{model="state"}} {n_alarms}' in client.get("/metrics").text
    audited = ("--log", log, "--audit", "1%")
    for model, action, options, sentence in [
        ("fraud", "no", audited, "--default-action must be left out for a model with a positive class"),
        ("state", "lost", audited, "--default-action must be one of"),
        ("state", "worn", (), "must go with --audit"),
    ]:
        code, _, err = crcen_command("serve", models[model], *options, "--default-action", action)
        assert (code, sentence in err) == (1, True)


@both_models
def test_labels_feed_the_monitor(models, tmp_path, name, table, target):
    client = client_of(models[name], log=tmp_path / "log.jsonl", log_inputs=True)
    labels, _ = predicted(client, table(400, seed=3), target)
    ids = list(labels)
    assert "No labels yet" in client.get("/monitor").text
    pairs = [{"id": one, "label": labels[one]} for one in ids[:300]]
    found = client.post("/labels", json=[*pairs, {"id": "unheard", "label": labels[ids[0]]}]).json()
    assert [found[one] for one in ("labels", "unknown", "repeated")] == [300, 1, 0]
    assert (found["monitor"]["labelled"], found["monitor"]["is_alarm"]) == (300, False)
    assert not [*tmp_path.glob("*.lock"), *tmp_path.glob(".*")]
    again = client.post("/labels", json={one: labels[one] for one in ids[250:]}).json()
    assert (again["labels"], again["repeated"]) == (100, 50)
    assert again["monitor"]["call"] == 2
    assert "<svg" in client.get("/monitor").text
    for metric, value in (("labels_total", 400), ("monitor_alarm", 0)):
        assert f'crcen_{metric}{{model="{name}"}} {value}' in client.get("/metrics").text
    refused = client.post("/labels", json=[{"id": ids[0], "label": "purple"}])
    assert (refused.status_code, "got 'purple'" in refused.json()["error"]) == (422, True)
    for wrong in ([], [3], [{"id": "a"}], {"a": None}, "x"):
        assert client.post("/labels", json=wrong).status_code == 422


@pytest.mark.parametrize("log_inputs", [True, False])
@pytest.mark.parametrize("audit", [0.0, 0.2])
def test_labels_of_alarms_and_audits(models, tmp_path, audit, log_inputs):
    """Labels of a selection raise no alarm about columns; with audits they count by their probabilities."""
    client = client_of(models["fraud"], log=tmp_path / "log.jsonl", log_inputs=log_inputs, audit=audit)
    labels, found = predicted(client, binary_table(600, seed=11), "fraud")
    chosen = [one["id"] for one in found if one.get("audit", one["decision"] == "yes")]
    left = [next(one for one in labels if one not in chosen)] if audit else []
    answer = client.post("/labels", json={one: labels[one] for one in [*chosen, *left]}).json()
    assert (answer["labels"], answer["not_drawn"]) == (len(chosen), len(left))
    monitor = answer["monitor"]
    assert (monitor["rows"], monitor["labelled"], monitor["is_alarm"]) == (600, len(chosen), False)
    assert any("labels only where the model alarmed" in note for note in monitor["notes"]) == (not audit)


@both_models
def test_labels_are_compared_with_or_without_inputs(models, tmp_path, name, table, target):
    tests = []
    for has_inputs, is_swapped in ((False, False), (False, True), (True, False), (True, True)):
        client = client_of(models[name], log=tmp_path / f"{has_inputs}{is_swapped}.jsonl", log_inputs=has_inputs)
        labels, _ = predicted(client, table(600, seed=4), target)
        if is_swapped:
            kinds = sorted(set(labels.values()))
            labels = {one: kinds[kinds.index(label) - 1] for one, label in labels.items()}
        found = client.post("/labels", json=dict(list(labels.items())[:400])).json()
        assert (found["labels"], found["monitor"]["labelled"], found["monitor"]["rows"]) == (400, 400, 600)
        assert found["monitor"]["is_alarm"] == is_swapped
        assert f'crcen_monitor_alarm{{model="{name}"}} {is_swapped:d}' in client.get("/metrics").text
        if not has_inputs:
            assert "no inputs" in found["monitor"]["notes"][0]
            assert client.post("/labels", json=labels).json()["repeated"] == 400
            assert "2 batches" in client.get("/monitor").text
        tests.append([found["monitor"]["labels"][one] for one in ("drift_by_class", "counts")])
    for without, with_inputs in zip(tests[:2], tests[2:], strict=True):
        assert all(one == pytest.approx(other, rel=1e-9) for one, other in zip(without, with_inputs, strict=True))


@pytest.mark.parametrize("log_inputs", [True, False])
def test_equal_rows_of_other_identifiers_are_no_replay(models, tmp_path, log_inputs):
    client = client_of(models["fraud"], log=tmp_path / "log.jsonl", log_inputs=log_inputs)
    for _ in range(3):
        one = client.post("/predict", json=ROW).json()["id"]
        assert client.post("/labels", json={one: "no"}).json()["labels"] == 1


def test_labels_need_a_log(models):
    client = client_of(models["fraud"])
    answer = client.post("/labels", json={"a": "yes"})
    assert (answer.status_code, "--log FILE" in answer.json()["error"]) == (422, True)
    assert client.get("/monitor").status_code == 422


def test_metrics_count_requests_and_rows(models):
    client = client_of(models["fraud"])
    client.post("/predict", json=[{**ROW, "amount": 1e9}, ROW])
    client.post("/predict", json=[])
    text = client.get("/metrics").text
    for line in (
        'crcen_requests_total{status="2xx"} 1',
        'crcen_requests_total{status="4xx"} 1',
        'crcen_requests_total{status="5xx"} 0',
        'crcen_request_seconds_bucket{le="+Inf"} 2',
        "crcen_request_seconds_count 2",
        'crcen_rows_total{model="fraud"} 2',
        'crcen_alarms_total{model="fraud"} 2',
        'crcen_unlike_total{model="fraud"} 1',
    ):
        assert line in text.splitlines(), line
    bounds = [float(line.split()[-1]) for line in text.splitlines() if "_bucket" in line]
    assert bounds == sorted(bounds)


def test_reload(models, tmp_path):
    path = tmp_path / "model.crcen"
    shutil.copy(models["fraud"], path)
    client = client_of(path)
    before = client.post("/predict", json=ROW).json()
    assert client.post("/models/reload").json()["changed"] == []
    path.write_bytes(models["state"].read_bytes()[:-20] + bytes(20))
    assert client.post("/models/reload").status_code == 422
    assert {**client.post("/predict", json=ROW).json(), "id": ""} == {**before, "id": ""}
    shutil.copy(models["state"], path)
    assert client.post("/models/reload").json()["changed"] == ["model"]
    assert set(client.post("/predict", json=ROW).json()["probability"]) == {"broken", "fine", "worn"}


@contextmanager
def sending(server, body, n_threads=1):
    """Threads that send a body until the block ends; the answers as (status, version), and the errors."""
    seen, errors, stop = set(), [], threading.Event()

    def send():
        with httpx.Client(base_url=server.address, timeout=60) as client:
            while not (stop.is_set() or errors):
                try:
                    answer = client.post("/predict", json=body)
                    seen.add((answer.status_code, answer.json()["version"]))
                except httpx.TransportError as error:
                    errors.append(error)
                time.sleep(0.005)

    threads = [threading.Thread(target=send) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    yield seen, errors
    stop.set()
    for thread in threads:
        thread.join()


def test_kill_leaves_a_readable_log(models, tmp_path, start):
    log = tmp_path / "log.jsonl"
    server = start("serve", models["fraud"], "--port", 0, "--log", log, "--log-inputs")
    rows = records(binary_table(200, seed=1).drop(columns="fraud"))
    with sending(server, rows, 2):
        assert until(lambda: log.stat().st_size > 100_000)
        server.end(signal.SIGKILL)
    n_lines = len(lines(log))
    assert (n_lines >= 200, n_lines % 200) == (True, 0)


def test_reload_by_signal_and_shutdown_drop_no_request(models, tmp_path, start):
    path = tmp_path / "model.crcen"
    shutil.copy(models["fraud"], path)
    server = start("serve", path, "--port", 0)
    with sending(server, ROW) as (seen, errors):
        assert until(lambda: seen)
        path.write_bytes(b"damaged")
        os.kill(server.popen.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert len(seen) == 1
        shutil.copy(models["state"], path)
        os.kill(server.popen.pid, signal.SIGHUP)
        assert until(lambda: len(seen) == 2)
    assert ({status for status, _ in seen}, errors) == ({200}, [])
    assert server.end() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_workers_share_log_metrics_and_reload(models, tmp_path, start):
    path, log = tmp_path / "model.crcen", tmp_path / "log.jsonl"
    shutil.copy(models["fraud"], path)

    def is_new(answer):
        found = answer.json()["probability"]
        return isinstance(found, dict) and set(found) == {"broken", "fine", "worn"}

    server = start("serve", path, "--port", 0, "--workers", 2, "--log", log, "--log-inputs")
    server.wait_ready()
    children = Path(f"/proc/{server.popen.pid}/task/{server.popen.pid}/children")
    with httpx.Client(base_url=server.address, timeout=60, headers={"connection": "close"}) as client:
        for _ in range(200):  # new connections, so that both workers answer
            assert client.post("/predict", json=ROW).status_code == 200
        assert len(lines(log)) == 200
        assert 'crcen_rows_total{model="model"} 200' in client.get("/metrics").text
        shutil.copy(models["state"], path)
        assert client.post("/models/reload").json()["changed"] == ["model"]
        assert until(lambda: all(is_new(client.post("/predict", json=ROW)) for _ in range(30)))
    workers = [int(one) for one in children.read_text().split()] if children.exists() else []
    assert server.end() == 0
    assert until(lambda: not any(os.path.exists(f"/proc/{one}") for one in workers))
