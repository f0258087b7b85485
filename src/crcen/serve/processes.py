"""Server processes: one server in this process, or several workers with one socket; signals and shutdown."""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from crcen import CrcenError, InvalidParameter
from crcen.serve.server import Service, Settings

_LOGGER = logging.getLogger("crcen.serve")
Reload = Callable[[], list[str]]

_ENDS = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 10
# Workers that end sooner than this are not started again at once.
_SHORTEST_LIFE = 1.0


@contextmanager
def _signals(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], object]]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that reloads on SIGHUP, and ends with status 0 on SIGTERM and SIGINT."""

    reload: Reload | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        hup = {signal.SIGHUP: lambda *_: loop.call_soon_threadsafe(loop.run_in_executor, None, self._try_reload)}
        with _signals({**dict.fromkeys(_ENDS, self.handle_exit), **({} if self.reload is None else hup)}):
            yield

    def _try_reload(self) -> None:
        assert self.reload is not None
        try:
            _LOGGER.warning("models reloaded, changed: %s", ", ".join(self.reload()) or "none")
        except CrcenError as error:
            _LOGGER.error("models were not reloaded, the old ones stay: %s", error)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; a used port is an error with one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is stated; with it some answers wait 40 ms for an ACK.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidParameter(f"port {port} at {host} cannot be used: {why}; try another --port.") from error
    found.listen(1024)
    return found


def run_server(app: ASGIApp, sock: socket.socket, reload: Reload | None = None) -> None:
    """Answer requests at a socket until SIGTERM or SIGINT; running requests are finished first."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=1000,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    if not _LOGGER.handlers:  # the library's own handler discards records
        _LOGGER.addHandler(logging.StreamHandler())
    gc.collect()
    gc.freeze()  # collections during requests pass over models and libraries
    server = _Server(config)
    server.reload = reload
    server.run([sock])


def serve(settings: Settings, port: int, workers: int = 1, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve models until a signal ends it; port 0 takes a free one, and ``started`` is called with the address."""
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    with bound_socket(settings.host, port) as sock, tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        address = f"http://{shown}:{sock.getsockname()[1]}"
        if workers > 1:
            settings = replace(settings, metrics=Path(folder) / "metrics", workers=workers)
        service = Service(settings)  # creates shared counters, and refuses what workers would refuse
        if workers > 1:
            _supervise(settings, sock, lambda: started(address))
        else:
            started(address)
            run_server(service.asgi, sock, service.reload)


def _work(settings: Settings, sock: socket.socket) -> None:
    """A worker process; it ends with its parent."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    service = Service(settings)
    run_server(service.asgi, sock, service.reload)


def _supervise(settings: Settings, sock: socket.socket, started: Callable[[], None]) -> None:
    """Start workers, start them again if they die, and pass signals on."""
    context = multiprocessing.get_context("spawn")
    workers: list[tuple[SpawnProcess, float]] = []
    ended: list[int] = []

    def start(i: int) -> tuple[SpawnProcess, float]:
        found = context.Process(target=_work, args=(replace(settings, worker=i), sock), daemon=True)
        found.start()
        return found, time.monotonic()

    def reload(*caught: object) -> None:
        for worker, _ in workers:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGHUP)

    with _signals({**dict.fromkeys(_ENDS, lambda number, _: ended.append(number)), signal.SIGHUP: reload}):
        workers += [start(i) for i in range(settings.workers)]
        started()
        while not ended:
            time.sleep(0.1)
            for i, (worker, birth) in enumerate(workers):
                if not worker.is_alive() and time.monotonic() - birth > _SHORTEST_LIFE:
                    sys.stderr.write(f"crcen: worker {i} ended with status {worker.exitcode} and is started again\n")
                    workers[i] = start(i)
        for worker, _ in workers:
            worker.terminate()
        end = time.monotonic() + _GRACE_SECONDS + 5
        for worker, _ in workers:
            worker.join(max(0.1, end - time.monotonic()))
            worker.kill()
