"""The server: access, answers, mistakes, decision log, audits, labels, metrics, reload and processes."""

import asyncio
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import types
from contextlib import contextmanager
from pathlib import Path

import httpx
import jsonschema
import numpy as np
import pandas as pd
import pytest
from serve_tables import ROW, binary_table, both_models, class_table, client_of, records, until
from starlette.testclient import TestClient

import crcen
from crcen.exceptions import DataUnavailable
from crcen.serve.decision_log import DecisionLog
from crcen.serve.server import Service, Settings, application, bound_socket

TOKEN = "correct-horse"


def test_loopback_refuses_foreign_hosts_and_origins(models):
    app, local = Service(Settings((models["fraud"],))).asgi, "http://127.0.0.1:8000"
    for host, status in ((local, 200), ("http://localhost", 200), ("http://evil.example", 403)):
        assert TestClient(app, base_url=host).post("/predict", json=ROW).status_code == status
    for origin, status in ((local, 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:9999", 403)):
        answer = TestClient(app, base_url=local).post("/predict", json=ROW, headers={"origin": origin})
        assert answer.status_code == status


def test_token(models):
    app = Service(Settings((models["fraud"],), host="0.0.0.0", token=TOKEN)).asgi
    client = TestClient(app, base_url="http://model.example")
    right = {"authorization": f"Bearer {TOKEN}"}
    for path in ("/v2", "/metrics", "/openapi.json", "/v2/models/fraud", "/nothing"):
        assert client.get(path).status_code == 403
    for wrong in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
        assert client.post("/predict", json=ROW, headers={"authorization": wrong}).status_code == 403
    assert client.post(f"/predict?token={TOKEN}", json=ROW).status_code == 403
    assert client.post("/predict", json=ROW, headers=right).status_code == 200
    assert client.get("/v2/health/live").status_code == 200
    assert "security" in client.get("/openapi.json", headers=right).json()


def test_other_hosts_need_a_token(models, crcen_command, tmp_path):
    (tmp_path / "token").write_bytes(b"\xff" * 20)
    for options, wanted, sentence in (
        (("fraud.crcen", "--host", "0.0.0.0", "--port", "0"), 2, "needs a token"),
        (("fraud.crcen", "--token", "short"), 2, "at least 8 characters"),
        (("fraud.crcen", "--audit", "300%"), 2, "must be a share"),
        (("fraud.crcen", "--token-file", tmp_path / "token"), 2, "--token must hold ASCII characters only"),
        (("fraud.crcen", "--token-file", tmp_path / "none"), 1, "none cannot be read"),
        (("none.crcen",), 1, "none.crcen"),
    ):
        code, _, err = crcen_command("serve", models["fraud"].with_name(options[0]), *options[1:])
        assert (code, sentence in err) == (wanted, True)


def test_answers_are_sent_without_delay():
    async def option():
        found = asyncio.get_running_loop().create_future()

        async def accept(reader, writer):
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accept, sock=bound_socket("127.0.0.1", 0)) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            return await found

    assert asyncio.run(option()) == 1  # with Nagle's algorithm, answers can wait 40 ms


PAGE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"


def test_mlflow_example(models, monkeypatch):
    logged = {}
    pyfunc = types.SimpleNamespace(PythonModel=object, log_model=lambda **options: logged.update(options))
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(pyfunc=pyfunc))
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    exec(code, {})
    model = logged["python_model"]
    model.load_context(types.SimpleNamespace(artifacts={"model": models["fraud"]}))
    rows = binary_table(30, seed=2).drop(columns="fraud")
    found, wanted = model.predict(None, rows), crcen.predict_table(models["fraud"], rows).frame
    assert list(found) == ["probability", "decision"]
    np.testing.assert_array_equal(found["probability"], wanted["probability"])


def test_factory_for_other_servers(models):
    assert 'crcen.serve.server:application("fraud.crcen")' in PAGE.read_text(encoding="utf-8")
    client = TestClient(application(str(models["fraud"])), base_url="http://127.0.0.1")
    assert client.post("/predict", json=ROW).status_code == 200


@pytest.fixture(scope="module")
def client(models):
    return client_of(*models.values(), max_rows=500, max_bytes=400_000)


def post(client, body, query="", kind="application/json"):
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    answer = client.post(f"/predict?{query}", content=content, headers={"content-type": kind})
    return answer.status_code, json.loads(answer.text, parse_constant=pytest.fail)


@both_models
@pytest.mark.parametrize("n", [1, 30, 200])
def test_answers_equal_those_of_predict_table(client, models, name, table, target, n):
    frame = table(n, seed=5).drop(columns=target)
    wanted = crcen.predict_table(models[name], frame).frame
    rows = records(frame)
    _, by_json = post(client, rows[0] if n == 1 else rows, f"model={name}")
    _, by_csv = post(client, frame.to_csv(index=False), f"model={name}", "text/csv")
    for answer in ([by_json] if n == 1 else by_json["predictions"], by_csv["predictions"]):
        assert [one["decision"] for one in answer] == wanted["decision"].tolist()
        p = pd.DataFrame([one["probability"] for one in answer]).to_numpy()
        columns = [one for one in wanted if one.startswith("probability")]
        np.testing.assert_allclose(p, wanted[columns].to_numpy(), rtol=1e-9)
        assert all(one.get("notes", []) == [] for one in answer)


@both_models
def test_inference_protocol_equals_predict(client, name, table, target):
    frame = table(20, seed=6).drop(columns=target)
    kinds = {"amount": "FP64", "age": "FP64", "member": "BOOL"}
    rows = records(frame)
    # As kserve.InferRequest.to_rest writes it: shape [n, 1] or [n], strings as BYTES, missing values as null.
    inputs = [
        {"name": column, "shape": [20], "datatype": kinds.get(column, "BYTES"), "data": [row[column] for row in rows]}
        for column in frame
    ]
    inputs[0]["shape"] = [20, 1]
    answer = client.post(f"/v2/models/{name}/infer", json={"id": "7", "inputs": inputs, "parameters": {"foreign": 1}})
    assert answer.status_code == 200
    found = answer.json()
    assert (found["id"], found["model_name"]) == ("7", name)
    outputs = {one["name"]: one for one in found["outputs"]}
    _, plain = post(client, rows, f"model={name}")
    assert outputs["decision"]["data"] == [one["decision"] for one in plain["predictions"]]
    p = pd.DataFrame([one["probability"] for one in plain["predictions"]]).to_numpy()
    assert outputs["probability"]["data"] == pytest.approx(p.ravel().tolist())
    assert outputs["probability"]["shape"] == ([20] if name == "fraud" else [20, 3])
    asked = client.post(f"/v2/models/{name}/infer", json={"inputs": inputs, "outputs": [{"name": "decision"}]}).json()
    assert [one["name"] for one in asked["outputs"]] == ["decision"]


def packed(texts):
    return b"".join(struct.pack("<I", len(one.encode())) + one.encode() for one in texts)


def test_inference_protocol_binary_tensors(client):
    """As tritonclient.http writes them: JSON first, then the bytes of each tensor."""
    rows = records(binary_table(3, seed=7).drop(columns="fraud"))
    data = {name: packed(row[name] for row in rows) for name in ("country", "since")}
    kinds = dict.fromkeys(data, "BYTES")
    for name, kind, form in (("amount", "FP64", "d"), ("age", "FP32", "f"), ("member", "BOOL", "?")):
        cells = [np.nan if row[name] is None else row[name] for row in rows]
        data[name], kinds[name] = struct.pack(f"<{len(cells)}{form}", *cells), kind
    sizes = {one: {"binary_data_size": len(cells)} for one, cells in data.items()}
    inputs = [{"name": one, "shape": [3], "datatype": kinds[one], "parameters": sizes[one]} for one in data]
    _, plain = post(client, rows, "model=fraud")
    wanted = [one["probability"] for one in plain["predictions"]]
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    asked = [{"name": "decision", "parameters": {"binary_data": True}}, {"name": "probability"}]
    all_binary = {"parameters": {"binary_data_output": True}}
    for options, n_binary in (({}, 0), (all_binary, 4), ({"outputs": asked}, 1)):
        header = json.dumps({"inputs": inputs, **options}).encode()
        length = {"Inference-Header-Content-Length": str(len(header))}
        answer = client.post("/v2/models/fraud/infer", content=header + b"".join(data.values()), headers=length)
        end = int(answer.headers.get("inference-header-content-length", len(answer.content)))
        outputs, rest = json.loads(answer.content[:end])["outputs"], answer.content[end:]
        found = {}
        for one in outputs:
            size = one.get("parameters", {}).get("binary_data_size", 0)
            found[one["name"]], rest = one.get("data", rest[:size]), rest[size:]
        assert (rest, sum("parameters" in one for one in outputs)) == (b"", n_binary)
        p = np.frombuffer(found["probability"], "<f8").tolist() if n_binary == 4 else found["probability"]
        assert p == pytest.approx(wanted, rel=1e-6)
        decisions = [one["decision"] for one in plain["predictions"]]
        assert found["decision"] == (packed(decisions) if n_binary else decisions)


def test_metadata_and_health(client):
    for state in ("live", "ready"):
        assert client.get(f"/v2/health/{state}").json() == {state: True}
    found = client.get("/v2/models/state").json()
    kinds = {"amount": "FP64", "country": "BYTES", "age": "FP64", "member": "BOOL", "since": "BYTES"}
    assert ({one["name"]: one["datatype"] for one in found["inputs"]}, found["outputs"][0]["shape"]) == (kinds, [-1, 3])
    for path, status in ((f"state/versions/{found['versions'][0]}", 200), ("state/versions/1", 404), ("none", 404)):
        assert client.get(f"/v2/models/{path}").status_code == status


def test_prices_of_a_request(client, models):
    rows = records(binary_table(60, seed=8).drop(columns="fraud"))
    p = np.array([one["probability"] for one in post(client, rows, "model=fraud")[1]["predictions"]])

    def decided(query, **options):
        _, found = post(client, {"rows": rows, **options} if options else rows, f"model=fraud&{query}")
        return np.array([one["decision"] == "yes" for one in found["predictions"]])

    for price in (0.5, 1, 3, 100):
        given = decided(f"budget={price}"), decided(f"lam={price / (1 + price)}")
        given += decided("", weighting={"no": 1, "yes": price}), decided("", costs=[[0, 1], [price, 0]])
        given += (decided("weighting=none"),) * (price == 1)
        assert (np.array(given) == (p > 1 / (1 + price))).all()
    assert (decided("weighting=balanced") == decided("balanced=true")).all()
    assert decided("capacity=7").sum() == 7
    recall = decided("recall=0.8")
    assert p[recall].sum() >= 0.8 * p.sum() > p[recall].sum() - p[recall].min()
    costs = {"costs": [[0, 1, 0.3], [20, 0, 2]], "actions": ["review"]}
    _, found = post(client, {"rows": rows, "costs": costs}, "model=fraud")
    wanted = np.column_stack([20 * p, 1 - p, 0.3 * (1 - p) + 2 * p]).argmin(axis=1)
    assert [one["decision"] for one in found["predictions"]] == np.array(["no", "yes", "review"])[wanted].tolist()
    status, found = post(client, {"rows": rows, "costs": [[1, 0], [0, 5]]}, "model=fraud")
    assert (status, "if these are gains" in found["error"]) == (422, True)
    _, found = post(client, rows, "model=state&weighting=broken=1,fine=50,worn=1")
    p = pd.DataFrame([one["probability"] for one in found["predictions"]])
    wanted = (p * [1, 50, 1]).idxmax(axis=1).tolist()
    assert [one["decision"] for one in found["predictions"]] == wanted


def test_rows_unlike_training_get_notes(client):
    row = {**ROW, "amount": 1e9, "country": "XX"}
    _, found = post(client, row, "model=fraud")
    assert found["notes"] == [
        "amount: 1000000000.0 is far outside the training range",
        "country: 'XX' was not seen in training, or was rare",
    ]
    del row["since"]
    notes = set(post(client, {**row, "country": None, "hue": 1}, "model=fraud")[1]["notes"])
    said = "country: null is missing, which did not occur in training"
    assert {"column missing: since", "unknown column ignored: hue", said} <= notes
    _, many = post(client, [ROW] * 80 + [{**ROW, "country": "XX"}], "model=fraud")
    assert many["notes"] == ["country: 1 cell where the value was not seen in training, or was rare"]


@pytest.mark.parametrize("n", [2, 80])
def test_csv_rows_get_the_notes_of_json_rows(client, n):
    frame = pd.DataFrame([{**ROW, "country": "XX"}] * n).drop(columns="since")
    _, by_csv = post(client, frame.to_csv(index=False), "model=fraud", "text/csv")
    _, by_json = post(client, records(frame), "model=fraud")
    assert by_csv["notes"] == by_json["notes"]
    assert by_csv["predictions"][0].get("notes") == by_json["predictions"][0].get("notes")
    assert "column missing: since" in (by_csv["notes"] if n > 64 else by_csv["predictions"][0]["notes"])
    _, wrong = post(client, frame.assign(amount="much").to_csv(index=False), "model=fraud", "text/csv")
    assert wrong["error"] == "amount must be a finite number in row 1: got 'much'; null is missing."
    _, wrong = post(client, "amount,country\n1,NO,3\n", "model=fraud", "text/csv")
    assert wrong["error"].startswith("the CSV body has 2 column names over rows of 3 values")


@both_models
def test_reasons_are_those_of_predict_table(client, models, name, table, target):
    frame = table(40, seed=9).drop(columns=target).astype({"since": "datetime64[ns]"})
    wanted = crcen.predict_table(models[name], frame, reasons=2).frame
    alarm = int(np.flatnonzero(wanted["decision"].isin(["yes", "broken"]))[0])
    row = {**frame.iloc[alarm].to_dict(), "since": str(frame["since"][alarm].date())}
    row = {key: None if cell != cell else cell for key, cell in row.items()}
    _, found = post(client, row, f"model={name}&reasons=2")
    assert found["reasons"][0] == wanted["reason_1"][alarm]
    assert found.get("reasons_for") == (wanted["reasons_for"][alarm] if name == "state" else None)
    if name == "state":  # at another price another class is decided, and explained
        _, other = post(client, row, "model=state&reasons=1&weighting=fine=1000,worn=1,broken=1")
        assert (found["decision"], other["decision"]) == ("broken", "fine")
        assert other["reasons_for"].startswith("fine rather than")


@pytest.mark.parametrize("n", [1, 80])
def test_identifiers_are_no_unknown_column(client, n):
    rows = [{**ROW, "customer": f"c{i}"} for i in range(n)]
    found, other = (post(client, rows, f"model=fraud{option}")[1] for option in ("&id=customer", ""))
    assert [one["id"] for one in found["predictions"]] == [row["customer"] for row in rows]
    assert ["unknown column ignored: customer" in one["notes"] for one in (found, other)] == [False, True]


MISTAKES = [
    ("{", "the body must be JSON"),
    ("", "the body must be JSON"),
    ("[" * 100_000, "nested"),
    (b"\xff\xfe", "JSON"),
    ("3", "must be a row"),
    ([], "at least one row: got an empty list"),
    ([3], "row 1 is a int"),
    ({}, "none of the model's columns"),
    ([ROW, {}], "row 2 has none"),
    ({**ROW, "amount": "much"}, "amount must be a finite number: got 'much'"),
    ([{**ROW, "amount": "much"}] * 90, "amount must be a finite number in row 1: got 'much'"),
    ({**ROW, "amount": [1, 2]}, "amount must be one value: got [1, 2]"),
    ([ROW] * 70 + [{**ROW, "amount": {"a": 1}}], "amount must be one value in row 71: got {'a': 1}"),
    ('{"amount": Infinity, "country": "NO"}', "Infinity is not a JSON number"),
    ('{"amount": 1e999, "country": "NO"}', "amount must be a finite number: got inf"),
    ('{"amount": 1' + "0" * 400 + "}", "below 1e300"),
    ('{"amount": 1' + "0" * 9000 + "}", "the body must be JSON"),
    ('{"amount": 1, "country": "\\ud800"}', "UTF-8"),
    ({**ROW, "member": 1e308}, "member must be true or false: got 1e+308"),
    ({**ROW, "since": "soon"}, "since must be a date: got 'soon'"),
    ({"amuont": 3, "country": "NO"}, "did you mean amount?"),
    ([ROW] * 501, "at most 500 rows: got 501"),
]


@pytest.mark.parametrize(("body", "sentence"), MISTAKES)
def test_mistakes_get_422_and_one_sentence(client, body, sentence):
    status, found = post(client, body, "model=fraud")
    assert (status, set(found), "Traceback" in found["error"]) == (422, {"error"}, False)
    assert sentence in found["error"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("budget=x", "budget must be a number"),
        ("budget=1,000", "budget must be a number"),  # 1 or 1000
        ("budget=-1", "Budget must be a finite number above 0"),
        ("budget=1&recall=0.5", "budget and recall both state the price"),
        ("budget=1&budget=2", "each option must be stated once: got model, budget, budget."),
        ("reasons=-1", "reasons must be a whole number from 0 to 100"),
        ("reasons=1.5", "reasons must be a whole number"),
        ("weighting=balance", "weighting must have a weight for each class: got 'balance'."),
        ("weighting=yes=3", "every value of the target needs a weight: no has none"),
        ("budgt=3", "unknown option 'budgt'"),
        ("id=customer", "id 'customer' must be a column"),
    ],
)
def test_mistakes_in_options(client, query, sentence):
    status, found = post(client, ROW, f"model=fraud&{query}")
    assert (status, sentence in found["error"]) == (422, True)
    assert "is for two classes" in post(client, ROW, "model=state&budget=3")[1]["error"]
    _, wrong = post(client, {"rows": [ROW], "costs": [[0, 1], [2, 0]]}, "model=state")
    assert wrong["error"].startswith("these costs are for 2 classes, and there are ")
    both = post(client, {"rows": [ROW], "budget": 2}, "model=fraud&budget=3")[1]["error"]
    assert both == "each option must be stated once: got budget, model, budget."
    assert post(client, ROW, "")[1]["error"].startswith("several models are served")
    assert post(client, ROW, "model=nothing")[0] == 404


def test_size_limit_and_methods(client):
    status, found = post(client, b" " * 400_001, "model=fraud")
    assert (status, "400,000 bytes" in found["error"]) == (413, True)
    assert client.post("/predict?model=fraud", content=(b" " * 10_000 for _ in range(50))).status_code == 413
    answer = client.post("/predict?model=fraud", content=b"x", headers={"content-encoding": "gzip"})
    assert (answer.status_code, "without compression" in answer.json()["error"]) == (415, True)
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").json()["error"].startswith("there is nothing at /nothing; /openapi.json lists")
    assert post(client, ROW, "model=fraud", "image/png")[0] == 422


def test_queue_and_time_limits(models):
    service = Service(Settings((models["fraud"],), timeout=0.001, threads=1, queue=0))
    client = TestClient(service.asgi, base_url="http://127.0.0.1")
    many = [ROW] * 3000
    status, found = post(client, many)
    assert (status, found["error"]) == (503, "the request took longer than 0.001 s: send fewer rows.")
    service._n_waiting = 1
    answer = client.post("/predict", json=many)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert post(client, ROW)[0] == 200  # small requests are answered at once


def test_openapi_describes_answers(client):
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    predict = document["paths"]["/predict"]["post"]
    parts = (predict["requestBody"], predict["responses"]["200"], predict["responses"]["422"])
    body, answer, error = (one["content"]["application/json"]["schema"] for one in parts)

    def check(value, schema):
        jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)

    for name in ("fraud", "state"):
        for sent in (ROW, [ROW] * 3, {"rows": [ROW]}):
            check(sent, body)
            status, found = post(client, sent, f"model={name}&reasons=1")
            assert status == 200
            check(found, answer)
    check(post(client, [], "model=fraud")[1], error)
    with pytest.raises(jsonschema.ValidationError):
        check([], body)
    for path, item in document["paths"].items():
        (method,) = item
        real = path.replace("{name}", "fraud")
        assert client.request(method, real).status_code not in (404, 405), path


def test_2000_malformed_requests(client):
    """Random damage to valid requests: an answer each time, never an internal error."""
    rng = random.Random(0)
    valid = [
        ("/predict?model=fraud", json.dumps(ROW)),
        ("/predict?model=state", json.dumps([ROW] * 3)),
        ("/v2/models/fraud/infer", '{"inputs": [{"name": "amount", "shape": [1], "datatype": "FP64", "data": [1]}]}'),
        ("/labels?model=fraud", json.dumps([{"id": "a", "label": "yes"}])),
    ]
    values = ["null", "true", "-1e308", "1e308", "{}", "[]", '"\\u0000"', f'"{"x" * 3000}"', "1" * 20, '""']
    seen = set()
    for _ in range(2000):
        path, text = rng.choice(valid)
        for _ in range(rng.randint(1, 3)):
            i = rng.randrange(len(text) + 1)
            j = min(len(text), i + rng.randint(0, 12))
            text = text[:i] + rng.choice([*values, "", chr(rng.randrange(1, 0x2FFF)), text[i:j] * 2]) + text[j:]
        kind = rng.choice(["application/json", "application/json", "text/csv"])
        answer = client.post(path, content=text.encode("utf-8", "replace"), headers={"content-type": kind})
        seen.add(answer.status_code)
        assert answer.status_code in (200, 404, 413, 422), (answer.status_code, path, kind, text)
        json.loads(answer.text, parse_constant=pytest.fail)
    assert 422 in seen


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
    assert (with_inputs.post("/predict", json=rows[0]).status_code, lines(log)[-1]["inputs"]) == (200, rows[0])


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
    (tmp_path / "rows.csv").write_text("a,b\n1,2")  # without an end of line, which looks like a cut line of a log
    with pytest.raises(crcen.InvalidInput, match=r"rows\.csv exists and is no decision log: give another name"):
        DecisionLog(tmp_path / "rows.csv", 20_000)
    assert (tmp_path / "rows.csv").read_text() == "a,b\n1,2"
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
        assert (code, sentence in err) == (2, True)


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
    assert (again["labels"], again["repeated"], again["monitor"]["call"]) == (100, 50, 2)
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
    assert any("only alarms have labels" in note for note in monitor["notes"]) == (not audit)


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
    for answer in (client.post("/labels", json={"a": "yes"}), client.get("/monitor")):
        assert (answer.status_code, "--log FILE" in answer.json()["error"]) == (422, True)


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
    assert ({status for status, _ in seen}, errors, server.end()) == ({200}, [], 0)


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
