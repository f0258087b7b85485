"""`crcen serve` under bounded load on loopback, and a typical Starlette service with LightGBM in the same run.

Prints latencies of single rows at a fixed rate (from the scheduled time of each request), seconds for 10,000 rows in
one request against `crcen.predict_table`, and the memory of the server over many requests.
Run: python -m bench.speed.serve [--rate 200] [--seconds 20] [--requests 30000], about three minutes on two cores.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import crcen

# What many teams run: a data frame of the row, categories, predict_proba, a label.
TYPICAL = """
import json, pickle, sys
import pandas as pd, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
with open(sys.argv[1], "rb") as file:
    model, categories = pickle.load(file)
async def predict(request):
    rows = await request.json()
    frame = pd.DataFrame(rows if isinstance(rows, list) else [rows])
    for name, values in categories.items():
        frame[name] = pd.Categorical(frame[name], categories=values)
    frame = frame.astype({name: float for name in frame if name not in categories})
    p = model.predict_proba(frame)[:, 1]
    return JSONResponse([{"probability": float(one), "decision": bool(one > 0.09)} for one in p])
app = Starlette(routes=[Route("/predict", predict, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """Mixed columns with gaps and a rare event."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n).round(4) for j in range(8)})
    frame["amount"] = rng.lognormal(3.0, 1.0, n).round(2)
    frame["country"] = rng.choice(["NL", "NO", "DE", "FR"], n)
    frame["kind"] = rng.choice(["card", "transfer", "cash"], n)
    frame["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n))
    logit = frame["x0"] + 0.02 * frame["amount"] + (frame["country"] == "NO") - 4.0
    frame["fraud"] = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-logit)), "yes", "no")
    return frame


def free_port() -> int:
    """A port that nobody uses now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """A server process on loopback, ended by its id."""

    def __init__(self, command: list[str], port: int) -> None:
        self.port = port
        self.process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)

    def __enter__(self) -> "Server":
        import socket

        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024.0

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, which other processes on the machine change little."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connection:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> "Connection":
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 26)
        return self

    async def post(self, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        """Send a request and wait for its answer."""
        head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: {kind}\r\n"
        self.writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head_bytes = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head_bytes.split(b"\r\n")[1:] if line)
        return int(head_bytes.split()[1]), await self.reader.readexactly(int(fields[b"content-length"]))


async def latencies(
    port: int, bodies: list[bytes], rate: float, seconds: float, n_connections: int = 16
) -> list[float]:
    """Milliseconds from the scheduled time of each request to its answer."""
    queue: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    found: list[float] = []

    async def work() -> None:
        connection = await Connection(port).open()
        while (item := await queue.get()) is not None:
            due, body = item
            status, answer = await connection.post(body)
            assert status == 200, answer
            found.append(1000.0 * (time.perf_counter() - due))

    workers = [asyncio.create_task(work()) for _ in range(n_connections)]
    start = time.perf_counter() + 0.2
    for i in range(int(rate * seconds)):
        due = start + i / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        queue.put_nowait((due, bodies[i % len(bodies)]))
    for _ in workers:
        queue.put_nowait(None)
    await asyncio.gather(*workers)
    return found


async def many(port: int, bodies: list[bytes], n: int, n_connections: int = 4) -> float:
    """Requests per second of connections that wait for each answer."""
    left = iter(range(n))

    async def work() -> None:
        connection = await Connection(port).open()
        for i in left:
            status, answer = await connection.post(bodies[i % len(bodies)])
            assert status == 200, answer

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(n_connections)))
    return n / (time.perf_counter() - start)


async def seconds_of(
    port: int, body: bytes, kind: str, direct: Callable[[], object] = lambda: None, repeats: int = 7
) -> tuple[float, float]:
    """Median times of one large request and of a direct call, in turns; the first turn is not counted."""
    connection, found = await Connection(port).open(), []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        status, answer = await connection.post(body, kind)
        assert status == 200, answer
        middle = time.perf_counter()
        direct()
        found.append((middle - start, time.perf_counter() - middle))
    by_request, by_call = zip(*found[1:], strict=True)
    return statistics.median(by_request), statistics.median(by_call)


def typical_service(frame: pd.DataFrame, folder: Path, port: int) -> list[str]:
    """Fit LightGBM and write the service."""
    import pickle

    from lightgbm import LGBMClassifier

    X = frame.drop(columns="fraud")
    categories = {name: sorted(X[name].unique()) for name in ("country", "kind")}
    for name, values in categories.items():
        X[name] = pd.Categorical(X[name], categories=values)
    model = LGBMClassifier(n_estimators=200, verbose=-1, n_jobs=1).fit(X, frame["fraud"] == "yes")
    (folder / "lightgbm.pickle").write_bytes(pickle.dumps((model, categories)))
    (folder / "service.py").write_text(TYPICAL)
    return [sys.executable, str(folder / "service.py"), str(folder / "lightgbm.pickle"), str(port)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    write = sys.stdout.write
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = table(options.rows)
        crcen.fit_table(
            frame, target="fraud", weighting=crcen.Budget(10), time_limit=options.time_limit, out=folder / "m.crcen"
        )
        new = table(10_000, seed=1).drop(columns="fraud")
        bodies = [json.dumps(row).encode() for row in json.loads(new.head(500).to_json(orient="records"))]
        csv = folder / "new.csv"
        new.to_csv(csv, index=False)
        ports = free_port(), free_port()
        own = [sys.executable, "-m", "crcen", "serve", str(folder / "m.crcen"), "--port", str(ports[0])]
        commands = {"crcen serve": own, "Starlette + LightGBM": typical_service(frame, folder, ports[1])}
        for (title, command), port in zip(commands.items(), ports, strict=True):
            with Server(command, port) as server:
                asyncio.run(latencies(port, bodies, 50.0, 2.0))  # warm
                found = asyncio.run(latencies(port, bodies, options.rate, options.seconds))
                p50, p99 = np.quantile(found, [0.5, 0.99])
                before = server.cpu_seconds
                asyncio.run(many(port, bodies, 2000))
                each = (server.cpu_seconds - before) / 2.0
                write(f"{title}: {options.rate:g}/s: p50 {p50:.2f} ms, p99 {p99:.2f} ms, CPU {each:.2f} ms each\n")
                body = new.to_json(orient="records").encode()
                seconds, _ = asyncio.run(seconds_of(port, body, "application/json"))
                write(f"{title}: 10,000 rows as JSON {seconds:.3f} s\n")
                if title != "crcen serve":
                    continue
                model = crcen.load(folder / "m.crcen")
                in_process = partial(crcen.predict_table, model, csv)
                by_csv, direct = asyncio.run(seconds_of(port, csv.read_bytes(), "text/csv", in_process))
                write(f"{title}: 10,000 rows as CSV {by_csv:.3f} s, {by_csv / direct:.2f} × predict_table\n")
                before = server.megabytes
                per_second = asyncio.run(many(port, bodies, options.requests))
                write(
                    f"{title}: {options.requests:,} requests at {per_second:.0f}/s, memory {before:.0f} → "
                    f"{server.megabytes:.0f} MB\n"
                )


if __name__ == "__main__":
    main()
