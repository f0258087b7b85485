"""Tables with mixed columns, and server processes, for tests of the server and the application."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import httpx
import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from crcen.serve.server import Service, Settings

ROW = {"amount": 22.3, "country": "NO", "age": None, "member": False, "since": "2021-10-22"}


def draw(n=700, seed=0):
    """Mixed columns with missing values, and the log-odds of an event."""
    rng = np.random.default_rng(seed)
    columns = {"amount": rng.lognormal(3.0, 1.0, n).round(2), "country": rng.choice(["NL", "NO", "DE"], n)}
    columns["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n))
    columns["member"] = rng.choice([True, False], n)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    frame = pd.DataFrame({**columns, "since": since.strftime("%Y-%m-%d")})
    logit = 0.03 * frame["amount"] + 1.2 * (frame["country"] == "NO") - 3.0
    return frame, logit.to_numpy(), rng


def binary_table(n=700, seed=0):
    frame, logit, rng = draw(n, seed)
    return frame.assign(fraud=np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"))


def class_table(n=700, seed=0):
    frame, logit, rng = draw(n, seed)
    score = logit + rng.logistic(size=n)
    return frame.assign(state=np.select([score > 0, score > -1.5], ["broken", "worn"], "fine"))


MODELS = [("fraud", binary_table, "fraud"), ("state", class_table, "state")]
both_models = pytest.mark.parametrize(("name", "table", "target"), MODELS)


def records(frame):
    return json.loads(frame.to_json(orient="records"))


def client_of(*models, **options):
    return TestClient(Service(Settings(models, **options)).asgi, base_url="http://127.0.0.1")


class Process:
    """A `crcen` server process with its address."""

    def __init__(self, *arguments, env=None):
        command = [sys.executable, "-m", "crcen", *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(env or {})}
        self.popen = subprocess.Popen(command, env=environment, **options)
        self.first_line = self.popen.stdout.readline()
        found = [word for word in self.first_line.split() if word.startswith("http://")]
        assert found, self.first_line + self.popen.stdout.read()
        self.address = found[0]

    def wait_ready(self):
        def is_ready():
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.address}/v2/health/ready", timeout=2).status_code == 200

        assert until(is_ready), "the server did not start"

    def end(self, number=signal.SIGTERM):
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            code = self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait()
        self.popen.stdout.close()
        return code


def until(condition, seconds=60.0):
    """Wait until a condition holds; its last value."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return found
