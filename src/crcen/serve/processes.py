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
from collections.abc import Callable, Iterator
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


class _Server(uvicorn.Server):
    """A server that reloads on SIGHUP, and ends with status 0 on SIGTERM and SIGINT."""

    def __init__(self, config: uvicorn.Config, reload: Reload | None = None) -> None:
        super().__init__(config)
        self._reload = reload

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Callable[[int, FrameType | None], object]] = {
            signal.SIGINT: self.handle_exit,
            signal.SIGTERM: self.handle_exit,
        }
        if self._reload is not None and hasattr(signal, "SIGHUP"):
            loop, reload = asyncio.get_running_loop(), self._reload
            handlers[signal.SIGHUP] = lambda *_: loop.call_soon_threadsafe(loop.run_in_executor, None, _tried, reload)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _tried(reload: Reload) -> None:
    try:
        _LOGGER.warning("models reloaded, changed: %s", ", ".join(reload()) or "none")
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
    _Server(config, reload).run([sock])


def serve(settings: Settings, port: int, workers: int = 1, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve models until a signal ends it; port 0 takes a free one, and ``started`` is called with the address."""
    sock = bound_socket(settings.host, port)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{shown}:{sock.getsockname()[1]}"
    with sock:
        if workers == 1:
            service = Service(settings)
            started(address)
            run_server(service.asgi, sock, service.reload)
            return
        with tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
            settings = replace(settings, metrics=Path(folder) / "metrics", workers=workers)
            Service(settings)  # creates the shared counters, and refuses what workers would refuse
            _supervise(settings, sock, lambda: started(address))


def _work(settings: Settings, sock: socket.socket) -> None:
    """A worker process; it ends with its parent."""
    if hasattr(signal, "SIGHUP"):
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
    signals: list[int] = []
    handled = [*_ENDS, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in handled}

    def start(i: int) -> SpawnProcess:
        found = context.Process(target=_work, args=(replace(settings, worker=i), sock), daemon=True)
        found.start()
        return found

    processes = [start(i) for i in range(settings.workers)]
    births = [time.monotonic()] * settings.workers
    started()
    try:
        while True:
            time.sleep(0.1)
            while signals:
                number = signals.pop(0)
                if number in _ENDS:
                    return
                for one in processes:
                    with suppress(OSError):
                        os.kill(one.pid or 0, number)
            for i, one in enumerate(processes):
                if not one.is_alive() and time.monotonic() - births[i] > _SHORTEST_LIFE:
                    sys.stderr.write(f"crcen: worker {i} ended with status {one.exitcode} and is started again\n")
                    processes[i], births[i] = start(i), time.monotonic()
    finally:
        for one in processes:
            if one.is_alive():
                one.terminate()
        end = time.monotonic() + _GRACE_SECONDS + 5
        for one in processes:
            one.join(max(0.1, end - time.monotonic()))
            if one.is_alive():
                one.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
