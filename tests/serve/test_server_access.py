"""Who may send requests: hosts, origins, tokens; how connections are accepted."""

import asyncio
import re
import socket
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from serve_tables import ROW, binary_table
from starlette.testclient import TestClient

import crcen
from crcen import InvalidParameter
from crcen.serve.http import bound_socket
from crcen.serve.server import Service, Settings, application

TOKEN = "correct-horse"


def test_loopback_refuses_foreign_hosts_and_origins(models):
    app = Service(Settings((models["fraud"],))).asgi
    assert TestClient(app, base_url="http://127.0.0.1:8000").post("/predict", json=ROW).status_code == 200
    assert TestClient(app, base_url="http://localhost").post("/predict", json=ROW).status_code == 200
    assert TestClient(app, base_url="http://evil.example").post("/predict", json=ROW).status_code == 403
    local = TestClient(app, base_url="http://127.0.0.1:8000")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999"):
        assert local.post("/predict", json=ROW, headers={"origin": origin}).status_code == 403
    assert local.post("/predict", json=ROW, headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


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


def test_other_hosts_need_a_token(models, crcen_command):
    with pytest.raises(InvalidParameter, match="needs a token"):
        Settings((models["fraud"],), host="0.0.0.0")
    for options, wanted, sentence in (
        (("fraud.crcen", "--host", "0.0.0.0", "--port", "0"), 1, "needs a token"),
        (("fraud.crcen", "--token", "short"), 1, "at least 8 characters"),
        (("fraud.crcen", "--audit", "300%"), 2, "must be a share"),
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
