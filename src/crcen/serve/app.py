"""The local web application: from a table to scored rows, with the functions of the command line.

Each step runs in a child process that leads a session of its own. If the application ends in any way, the child and
its own children end at once.
"""

import atexit
import json
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from shlex import quote

import pandas as pd
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

import crcen
from crcen import Budget, CrcenError, InvalidInput, InvalidParameter, load
from crcen import __version__ as version
from crcen._support.files import write_atomic
from crcen._support.progress import report_to
from crcen._support.text import Values, attributes, json_value
from crcen.commands.inputs import require, require_input
from crcen.serve.served_model import Options, json_body, number
from crcen.serve.server import LOOPBACK, TEMPLATES, Endpoint, Guard, bound_socket, read_body, routed, run_server
from crcen.tables.reading import open_table
from crcen.tables.writing import TableWriter
from crcen.theory.goals import GOALS

_MOST_BYTES = 4_000_000_000
_PAGE_ROWS = 50
_FRAME = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; form-action 'none'; frame-ancestors 'self'",
    "Cache-Control": "no-store",
}
_REMOVE = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
_JANITOR = (sys.executable, "-I", "-S", "-c", _REMOVE)
_MONITOR_SUFFIX = ".monitor.json"
# Function, title and files of each step; a file is an option of the function, a name in the project and a file name.
_STEPS: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    "look": ("inspect_table", "Reading the table", []),
    "fit": ("fit_table", "Fitting", [("out", "model", "model.crcen"), ("report", "report", "report.html")]),
    "score": ("predict_table", "Scoring rows", [("out", "scored", "scored.csv")]),
    "monitor": ("monitor_table", "Comparing rows", [("page", "page", "monitor.html")]),
}
_SECONDS_BETWEEN = 0.2


class Job:
    """A step in a child process: "look", "fit", "score" or "monitor" with options of the public function.

    Its folder is removed if the job fails or is cancelled. ``done`` takes the result; ``limit`` is in seconds.
    """

    def __init__(
        self, step: str, options: Values, folder: Path, done: Callable[[Values], None], limit: float | None = None
    ) -> None:
        self.step, self.status, self.error = step, "running", ""
        self._share: float | None = None
        self._seconds: float | None = None
        self._folder, self._done, self._start = folder, done, time.monotonic()
        (folder / "scratch").mkdir(parents=True)
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe(duplex=False)
        self._child = context.Process(target=_work, args=(step, options, folder / "scratch", there))
        self._child.start()
        atexit.register(self._kill)  # before multiprocessing, which would wait for the child
        there.close()
        why = f"the step was stopped after {limit or 0:g} seconds: choose a longer time limit or fewer rows."
        self._timer = threading.Timer(limit or threading.TIMEOUT_MAX, self.cancel, ("failed", why))
        self._thread = threading.Thread(target=self._read)
        for one in (self._timer, self._thread):
            one.daemon = True
            one.start()

    def to_dict(self) -> Values:
        """The state of the step."""
        seconds = time.monotonic() - self._start if self._seconds is None else self._seconds
        found = {"step": self.step, "status": self.status, "title": _STEPS[self.step][1], "share": self._share}
        return {**found, "seconds": round(seconds, 1), "error": self.error}

    def cancel(self, status: str = "cancelled", why: str = "") -> None:
        """End the child and its own children, and remove its files."""
        if self.status == "running":
            self.status, self.error = status, why
            self._kill()
            self._thread.join(10)

    def _kill(self) -> None:
        assert self._child.pid is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.kill()  # before it leads a group
        self._child.join(10)

    def _read(self) -> None:
        result = None
        with suppress(EOFError, OSError):
            while True:
                name, value = self._pipe.recv()
                if name == "progress":
                    self._share = value
                elif name == "error":
                    self.error = value
                else:
                    result = value
        self._timer.cancel()
        self._kill()  # children of the child
        atexit.unregister(self._kill)
        self._pipe.close()
        shutil.rmtree(self._folder / "scratch", ignore_errors=True)
        if self.status == "running" and result is not None:
            self._done(result)
            self.status = "done"
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self.status == "running":
                self.error = self.error or "the step ended unexpectedly; the computer may lack memory."
                self.status = "failed"
        self._seconds = time.monotonic() - self._start


def _work(step: str, options: Values, scratch: Path, pipe: Connection) -> None:
    """Run a step in a child process; progress, and the result or an error, go into the pipe."""
    os.setsid()
    os.environ |= {"TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(scratch)}
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    last = (0.0, "")

    def progress(title: str, share: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last[0] > _SECONDS_BETWEEN or last[1] != title:
            last = (now, title)
            pipe.send(("progress", None if share is None else round(min(max(share, 0.0), 1.0), 4)))

    report_to(progress)
    try:
        result = getattr(crcen, _STEPS[step][0])(verbose=1, **options)
        pipe.send(("result", {"text": str(result), "values": result.to_dict()}))
    except (crcen.CrcenError, OSError) as error:
        pipe.send(("error", " ".join(str(error).split())))
    except MemoryError:
        pipe.send(("error", "the table does not fit into memory: use fewer rows, or crcen fit --engine stream."))
    pipe.close()
    os._exit(0)


@dataclass
class Project:
    """A table and what was made of it; files are in a temporary folder until the model is saved."""

    id: str
    folder: Path
    name: str
    table: Path | None = None
    job: Job | None = None
    results: Options = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    saved: Path | None = None
    frames: tuple[pd.DataFrame, pd.DataFrame] | None = None  # scored rows as written, and with numbers as numbers

    @property
    def state(self) -> Path:
        """File of the monitor."""
        return (self.saved or self.folder / "model.crcen").with_suffix(_MONITOR_SUFFIX)

    def check_free(self) -> None:
        """Refuse a second step while one runs."""
        if self.job is not None and self.job.status == "running":
            raise HTTPException(409, "a step is running: wait until it ends, or cancel it.")

    def to_dict(self) -> Options:
        """What the page shows."""
        return attributes(self, "id name job results commands saved") | {"files": sorted(self.files)}

    def file(self, name: str) -> Path:
        """A file that a step made."""
        if name not in self.files:
            raise HTTPException(404, f"there is no {name} yet.")
        return self.files[name]


class Application:
    """Projects of one user; models are saved in a folder, and `asgi` serves requests with the token."""

    def __init__(self, folder: Path, work: Path, token: str) -> None:
        self._saved, self._work = folder, work
        self._projects: dict[str, Project] = {}
        self._lock = threading.Lock()
        one = "/api/projects/{id}"
        endpoints: list[Endpoint] = [
            ("GET", "/", self.page),
            ("GET", "/api/saved", self.list_saved),
            ("POST", "/api/projects", self.open_table),
            ("POST", "/api/saved/{name}", self.open_saved),
            ("GET", one, lambda request: self._project(request).to_dict()),
            ("POST", f"{one}/target", self.look),
            ("POST", f"{one}/fit", self.fit),
            ("POST", f"{one}/cancel", self.cancel),
            ("POST", f"{one}/score", self.score),
            ("POST", f"{one}/monitor", self.monitor),
            ("POST", f"{one}/save", self.save),
            ("GET", f"{one}/rows", self.rows),
            ("GET", f"{one}/reasons", self.reasons),
            ("GET", f"{one}/scored", self.scored),
            ("GET", f"{one}/model", lambda request: FileResponse(self._file(request, "model"), filename="model.crcen")),
            ("GET", f"{one}/report", lambda request: self._frame(request, "report")),
            ("GET", f"{one}/monitor", lambda request: self._frame(request, "page")),
        ]
        self.asgi = Guard(routed(endpoints, (CrcenError, OSError)), token, LOOPBACK, in_query=True)

    def end(self) -> None:
        """End every running step."""
        for project in self._projects.values():
            if project.job is not None:
                project.job.cancel()

    # The page and its tables

    def page(self, request: Request) -> Response:
        """The application."""
        nonce = secrets.token_urlsafe(12)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "frame-src 'self'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
        )
        text = TEMPLATES.get_template("app.html.j2").render(
            nonce=nonce, version=version, folder=str(self._saved), goals=GOALS
        )
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        return HTMLResponse(text, headers={**headers, "X-Content-Type-Options": "nosniff"})

    def list_saved(self, request: Request) -> object:
        """Models in the folder."""
        return {"folder": str(self._saved), "models": sorted(one.name for one in self._saved.glob("*.crcen"))}

    async def open_table(self, request: Request) -> object:
        """A new project with an uploaded table."""
        folder = Path(tempfile.mkdtemp(dir=self._work))
        table = await self._upload(request, folder)
        project = self._new(table.name, folder)
        project.table = table
        return self._start(project, "look", {"data": str(table)}, _command("look", project.name))

    def open_saved(self, request: Request) -> object:
        """A new project with a saved model."""
        name = request.path_params["name"]
        path = self._saved / name
        if Path(name).name != name or not path.is_file():
            raise HTTPException(404, f"there is no saved model {name[:60]}.")
        served = load(path)
        project = self._new(name, Path(tempfile.mkdtemp(dir=self._work)))
        project.files["model"], project.saved = path, path
        labels = [str(json_value(label)) for label in served.classes_]
        project.results["model"] = {"labels": labels, "target": getattr(served, "target_name_", None)}
        return project.to_dict()

    # Steps

    async def look(self, request: Request) -> object:
        """Look at the table again, with a target."""
        project, given = self._project(request), await _given(request)
        target = _text(given, "target")
        options: Options = {"data": _table(project), "target": target}
        return self._start(project, "look", options, _command("look", project.name, target=target))

    async def fit(self, request: Request) -> object:
        """Fit a model, with a report on rows held out."""
        project, given = self._project(request), await _given(request)
        drop = given.get("drop")
        shared: Options = {"target": _text(given, "target"), "positive": given.get("positive") or None}
        options = {**shared, "data": _table(project), "drop": drop if isinstance(drop, list) else []}
        prefix, limit = "", None
        if given.get("price") == "costs":
            text, place = _costs(given.get("value"), str(shared["target"])), project.folder / "costs.csv"
            place.write_text(text, encoding="utf-8")
            options["costs"], price = str(place), Options(costs="costs.csv")
            prefix = f"printf '%s\\n' {' '.join(map(quote, text.splitlines()))} > costs.csv && "
        else:
            options["weighting"], price = _weighting(given)
        if given.get("effort") == "quick":
            options["effort"], effort = "quick", Options(quick=True)
        else:
            limit = number(given.get("time_limit", 60), "the time limit")
            require(1 <= limit <= 86_400, f"the time limit must be from 1 to 86,400 seconds: got {limit:g}.")
            options["time_limit"], effort = limit, Options(time_limit=f"{limit:g}")
        files: Options = {"out": "model.crcen", "report": "report.html"}
        command = _command("fit", project.name, **shared, **price, drop=options["drop"], **effort, **files)
        return self._start(project, "fit", options, prefix + command, None if limit is None else 3.0 * limit + 300.0)

    async def score(self, request: Request) -> object:
        """Score the rows of an uploaded table."""
        project, name, options = await self._new_rows(request)
        command = _command("predict", _model_name(project), name, out="scored.csv", all_columns=True)
        return self._start(project, "score", {**options, "all_columns": True}, command)

    async def monitor(self, request: Request) -> object:
        """Compare the rows of an uploaded table with those of training."""
        project, name, options = await self._new_rows(request)
        command = _command("monitor", _model_name(project), name, state=project.state.name, page="monitor.html")
        return self._start(project, "monitor", {**options, "state": str(project.state), "when": name}, command)

    async def _new_rows(self, request: Request) -> tuple[Project, str, Options]:
        project = self._project(request)
        model, name = project.file("model"), _file_name(request)
        project.check_free()
        data = await self._upload(request, project.folder / f"new-{secrets.token_hex(4)}")
        return project, name, {"model": str(model), "data": str(data)}

    def cancel(self, request: Request) -> object:
        """End the running step."""
        project = self._project(request)
        if project.job is not None:
            project.job.cancel()
        return project.to_dict()

    async def save(self, request: Request) -> object:
        """Copy the model into the folder of the user."""
        project, given = self._project(request), await _given(request)
        name = _text(given, "name").removesuffix(".crcen")
        allowed = f"the name must be letters, digits, spaces, dots and dashes: got {name[:60]!r}."
        require(re.fullmatch(r"[\w][\w .-]{0,99}", name), allowed)
        place = self._saved / f"{name}.crcen"
        if place.exists() and place != project.saved and not given.get("overwrite"):
            raise HTTPException(409, f"{place.name} exists: choose another name.")
        write_atomic(place, project.file("model").read_bytes())
        state = project.state
        if state.exists() and state != place.with_suffix(_MONITOR_SUFFIX):
            shutil.copyfile(state, place.with_suffix(_MONITOR_SUFFIX))
        project.saved = place
        project.commands["save"] = f"cp model.crcen {quote(str(place))}"
        return project.to_dict()

    # Scored rows

    def rows(self, request: Request) -> object:
        """A page of scored rows, sorted and filtered."""
        _, frame = self._frames(self._project(request))
        query = request.query_params
        shown = frame
        if query.get("decision"):
            shown = shown[shown["decision"].astype(str) == query["decision"]]
        if words := query.get("search", "").strip().lower():
            hit = shown.astype(str).apply(lambda column: column.str.lower().str.contains(words, regex=False))
            shown = shown[hit.any(axis=1)]
        sort = query.get("sort")
        if sort in frame.columns:
            key = None if shown[sort].dtype != object else lambda cells: cells.astype(str)
            shown = shown.sort_values(sort, ascending=query.get("order") != "down", kind="stable", key=key)
        page = max(0, int(query.get("page", "0"))) if query.get("page", "0").isdigit() else 0
        part = shown.iloc[page * _PAGE_ROWS : (page + 1) * _PAGE_ROWS]
        cells = [[_cell(cell) for cell in row] for row in part.itertuples(index=False, name=None)]
        return {
            "columns": list(map(str, frame.columns)),
            "decisions": sorted(map(str, frame["decision"].unique())),
            "rows": [{"row": int(i), "cells": row} for i, row in zip(part.index, cells, strict=True)],
            "found": len(shown),
            "all": len(frame),
            "page": page,
            "pages": max(1, -(-len(shown) // _PAGE_ROWS)),
        }

    def reasons(self, request: Request) -> object:
        """Why a row was decided as it was."""
        project, text = self._project(request), request.query_params.get("row", "")
        frame, _ = self._frames(project)
        if not text.isdigit() or int(text) >= len(frame):
            raise InvalidInput(f"row must be a number from 0 to {len(frame) - 1}: got {text[:20]!r}.")
        found = load(project.file("model")).reasons(frame.iloc[[int(text)]])
        command = project.commands.get("score", "") + " --reasons 5"
        return {"reasons": found.sentences(5)[0], "about": "".join(found.comparisons), "command": command}

    def scored(self, request: Request) -> Response:
        """All scored rows: CSV with a decimal point or comma, or Excel."""
        project, kind = self._project(request), request.query_params.get("kind", "csv")
        names = {"csv": "scored.csv", "comma": "scored-comma.csv", "xlsx": "scored.xlsx"}
        require(kind in names, f"kind must be csv, comma or xlsx: got {kind[:20]!r}.")
        place = project.file("scored").with_name(names[kind])
        if kind == "comma":
            self._frames(project)[1].to_csv(place, sep=";", decimal=",", index=False)
        elif kind == "xlsx":
            with TableWriter(place) as writer:
                writer.write(self._frames(project)[1])
        return FileResponse(place, filename=names[kind].replace("-comma", ""))

    def _file(self, request: Request, name: str) -> Path:
        return self._project(request).file(name)

    def _frame(self, request: Request, name: str) -> Response:
        """A page of the library, for a sandboxed frame."""
        return HTMLResponse(self._file(request, name).read_text(encoding="utf-8"), headers=_FRAME)

    def _frames(self, project: Project) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Scored rows as they were written, and with numbers as numbers."""
        with self._lock:
            if project.frames is None:
                for other in self._projects.values():
                    other.frames = None  # one table in memory at a time
                frame = open_table(project.file("scored")).read().reset_index(drop=True)
                project.frames = frame, frame.apply(_numbers)
            return project.frames

    # Projects, uploads and jobs

    def _new(self, name: str, folder: Path) -> Project:
        found = Project(secrets.token_hex(8), folder, name)
        self._projects[found.id] = found
        return found

    def _project(self, request: Request) -> Project:
        found = self._projects.get(request.path_params["id"])
        if found is None:
            raise HTTPException(404, "this table is no longer open: open it again.")
        return found

    async def _upload(self, request: Request, folder: Path) -> Path:
        """The body of a request as a file; the folder is removed if it fails."""
        folder.mkdir(exist_ok=True)
        size = 0
        try:
            place = folder / _file_name(request)
            with place.open("wb") as file:
                async for part in request.stream():
                    size += len(part)
                    if size > _MOST_BYTES:
                        raise HTTPException(413, "a table has at most 4 GB here: use crcen fit --engine stream.")
                    file.write(part)
            require_input(size, f"{place.name} is empty: choose another file.")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return place

    def _start(
        self, project: Project, step: str, options: Options, command: str, limit: float | None = None
    ) -> Options:
        """Start a step; its files and result belong to the project once it is done."""
        with self._lock:
            project.check_free()
            folder = project.folder / f"job-{secrets.token_hex(4)}"
            outputs = _STEPS[step][2]

            def done(result: Options) -> None:
                project.files.update({name: folder / file for _, name, file in outputs})
                project.results[step] = json.loads(json.dumps(result, default=str).replace(f"{folder}/", ""))
                project.commands[step] = command
                if step == "fit":
                    for name in ("score", "monitor"):
                        project.results.pop(name, None)
                    project.files.pop("scored", None)
                    project.saved = None
                project.frames = None

            places = {option: str(folder / file) for option, _, file in outputs}
            project.job = Job(step, {**options, **places}, folder, done, limit)
        return project.to_dict()


def run_app(folder: Path, port: int, started: Callable[[str], None], *, browser: bool) -> None:
    """Run the application until a signal ends it: what `crcen app` does."""
    require(folder.is_dir(), f"folder must exist: got {folder}.", "folder")
    sock = bound_socket("127.0.0.1", port)
    work = Path(tempfile.mkdtemp(prefix="crcen-app-"))
    # A process that removes the folder when this one ends in any way, also by SIGKILL.
    janitor = subprocess.Popen([*_JANITOR, str(work)], stdin=subprocess.PIPE, start_new_session=True)
    token = secrets.token_urlsafe(24)
    application = Application(folder.resolve(), work, token)
    address = f"http://127.0.0.1:{sock.getsockname()[1]}/?token={token}"
    try:
        started(address)
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with sock:
            run_server(application.asgi, sock)
    finally:
        application.end()
        assert janitor.stdin is not None
        janitor.stdin.close()
        janitor.wait(30)


async def _given(request: Request) -> Options:
    found = json_body(await read_body(request, 1_000_000, HTTPException(413, "options are at most 1 MB.")))
    if not isinstance(found, dict):
        raise InvalidInput("options must be an object.")
    return found


def _command(name: str, *words: str, **options: object) -> str:
    """The command of a step: False and None leave an option out, True has no value, a list repeats it."""
    parts = ["crcen", name, *words]
    for option, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if one not in (None, False):
                parts += [f"--{option.replace('_', '-')}", *([] if one is True else [str(one)])]
    return " ".join(map(quote, parts))


def _table(project: Project) -> str:
    if project.table is None:
        raise HTTPException(404, "this project has a model but no table: open a table to fit another model.")
    return str(project.table)


def _file_name(request: Request) -> str:
    name = Path(request.query_params.get("name", "").replace("\\", "/")).name.strip()
    name = "".join(letter for letter in name if letter.isprintable())[-120:].lstrip(".-")
    require_input(name, "the file needs a name, such as data.csv.")
    return name


def _model_name(project: Project) -> str:
    return "model.crcen" if project.saved is None else project.saved.name


def _text(given: Options, name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise InvalidInput(f"choose the {name} first.")
    return found


def _weighting(given: Options) -> tuple[object, Options]:
    kind, value = given.get("price", "balanced"), given.get("value")
    if kind == "balanced":
        return "balanced", {"balanced": True}
    if kind == "none":
        return "none", {"weighting": "none"}
    if kind == "weights":
        if not isinstance(value, dict) or not value:
            raise InvalidInput("enter a weight for each class.")
        weights = {str(label): number(weight, f"the weight of {label}") for label, weight in value.items()}
        return weights, {"weighting": ",".join(f"{label}={weight:g}" for label, weight in weights.items())}
    if kind == "budget":
        price = number(value, "the price of a miss")
        return Budget(price), {"budget": f"{price:g}"}
    goal = GOALS.get(kind) if isinstance(kind, str) else None
    if goal is None:
        allowed = ("balanced", "none", "weights", "costs", "budget", *GOALS)
        raise InvalidParameter(f"price must be one of {', '.join(allowed)}: got {kind!r}.")
    text = f"{number(value, f'the {kind}') * goal.statement.unit:.15g}{goal.statement.ending}"
    return goal(*goal.parse(text)), {goal.name: text}


def _costs(value: object, target: str) -> str:
    """A cost matrix as the file of ``--costs``: a row for each true class, a column for each decision."""
    labels, rows = (value.get("labels"), value.get("costs")) if isinstance(value, dict) else (None, None)
    if not isinstance(labels, list) or not isinstance(rows, list) or not labels:
        raise InvalidInput("enter the cost of each decision for each true class.")
    if len(rows) != len(labels) or not all(isinstance(row, list) and len(row) == len(labels) for row in rows):
        raise InvalidInput(f"costs must have {len(labels)} rows and columns, one for each class.")
    cells = [
        [f"{number(cost, f'the cost of {other} for {label}'):g}" for other, cost in zip(labels, row, strict=True)]
        for label, row in zip(labels, rows, strict=True)
    ]
    return str(pd.DataFrame(cells, labels, labels).to_csv(index_label=target, lineterminator="\n"))


def _numbers(cells: pd.Series) -> pd.Series:
    """A column as numbers if all its cells are; codes such as 007 stay texts."""
    if cells.dropna().astype(str).str.match(r"-?0\d").any():
        return cells
    try:
        return pd.to_numeric(cells)
    except (ValueError, TypeError):
        return cells


def _cell(cell: object) -> object:
    value = None if pd.isna(cell) else json_value(cell)
    return value if isinstance(value, int | float | str | bool | None) else str(value)
