"""`crcen reproduce`: settings in; a run folder with tables, figure and one HTML page out."""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

import crcen
from crcen._support.files import exclusive_lock, write_atomic
from crcen._support.text import closest
from crcen.paper import Values
from crcen.paper.claims import claims
from crcen.paper.figure1 import run_figure1
from crcen.paper.protocol import OWN_METRIC
from crcen.paper.run_folder import RunFolder, Table, settings_hash
from crcen.paper.table1 import run_table1
from crcen.paper.table2 import run_table2
from crcen.paper.table3 import READINGS, run_table3
from crcen.training.engines import find_engine

ARTEFACTS = ("table1", "table2", "table3", "figure1")
_CHOICES = {"selection": ("first_split", "per_split"), "scoring": ("f1", "g_mean", "weighted_log_loss", OWN_METRIC)}
_ARTEFACTS_OF = {"today": (*ARTEFACTS, "all"), "2019": ("table3", "figure1"), "scikit-learn": ("table3",)}


@dataclass(frozen=True)
class Reproduction:
    """Markdown texts to print, and the folder that holds everything."""

    folder: Path
    texts: list[str]


def read_settings(quick: bool, config: str | os.PathLike[str] | None = None, reading: str = "today") -> Values:
    """The packaged settings, full or quick, overridden by those of a reading and of a TOML file."""
    settings = _packaged_settings("quick" if quick else "full")
    if reading != "today":
        for section, values in _packaged_settings(f"reading_{reading}").items():
            settings[section] |= values
        settings["protocol"]["reading"] = reading
    if config is None:
        return settings
    try:
        own = tomllib.loads(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise crcen.InvalidParameter(f"config {os.fspath(config)} cannot be read as TOML: {error}.") from error
    for section, values in own.items():
        known = settings.get(section, {})
        unknown = sorted(set(values) - set(known)) if isinstance(values, dict) else [section]
        if unknown or not known:
            allowed = ", ".join(known) if known else f"the sections {', '.join(settings)}"
            entry = f"an unknown entry in [{section}] ({', '.join(unknown) or section})"
            raise crcen.InvalidParameter(f"config {os.fspath(config)} has {entry}: allowed are {allowed}.")
        known |= values
    return settings


def _packaged_settings(name: str) -> Values:
    file = resources.files("crcen.paper").joinpath("configs", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def reproduce(
    artefact: str = "all",
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    selection: str | None = None,
    scoring: str | None = None,
    config: str | os.PathLike[str] | None = None,
    engine: str = "local",
    methods: str | None = None,
    reading: str = "today",
) -> Reproduction:
    """Rebuild tables and figure of the paper; an interrupted run is resumed.

    ``quick`` has fewer repetitions and the bundled sets only. The run folder ``out`` is by default ``runs/`` and a hash
    of the settings; ``selection``, ``scoring`` and a TOML file ``config`` override the packaged settings. The rows do
    not depend on ``engine`` ("local" or "ray"). ``methods`` of Table 3 are separated by commas, or "all".

    The reading says how the paper is understood where it leaves things open. "2019": 200 epochs, weak penalties, each
    cell selected by its own metric, RUSBoost and balanced random forest as their libraries had them. "scikit-learn":
    plain and resampled networks are `MLPClassifier` with its defaults on the columns as they are, CRCEN and CSMLP see
    the same columns, ensembles as in "2019".
    """
    find_engine(engine)
    _check_choice("artefact", artefact, (*ARTEFACTS, "all"))
    _check_choice("reading", reading, READINGS)
    if artefact not in _ARTEFACTS_OF[reading]:
        allowed = " and ".join(_ARTEFACTS_OF[reading])
        raise crcen.InvalidParameter(f"the reading {reading} is of {allowed}: got {artefact}.")
    settings = read_settings(quick, config, reading)
    protocol = settings["protocol"]
    protocol |= {name: given for name, given in (("selection", selection), ("scoring", scoring)) if given is not None}
    for name in _CHOICES.keys() & protocol.keys():
        _check_choice(name, protocol[name], _CHOICES[name])
    if methods is not None:
        own = settings["table3"]["methods"]
        settings["table3"]["methods"] = method_names(methods, own if reading == "scikit-learn" else crcen.METHODS)
    folder = Path(out or f"runs/{'quick' if quick else 'full'}-{settings_hash(settings)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder} cannot be a run folder ({error.strerror}); give another --out."
        raise crcen.InvalidParameter(message) from error
    home = Path(data_home) if data_home is not None else None
    with exclusive_lock(folder, instead="give another --out"):
        return _rebuild(artefact, settings, folder, home, engine)


def _check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise crcen.InvalidParameter(f"{name} must be one of {', '.join(allowed)}: got {value!r}.")


def method_names(text: str, allowed: Iterable[str] | None = None) -> list[str]:
    """Names of methods from a comma-separated text, or all of them."""
    known = list(crcen.METHODS if allowed is None else allowed)
    if text.strip() == "all":
        return known
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names or [text]:
        if name not in known:
            near = closest(name, known)
            message = f"there is no method {name!r}{f', did you mean {near}?' if near else '.'}"
            raise crcen.InvalidParameter(f"{message} Allowed are all, or some of {', '.join(known)}.")
    return list(dict.fromkeys(names))


def _rebuild(artefact: str, settings: Values, folder: Path, home: Path | None, engine: str) -> Reproduction:
    """Run what is missing and derive the tables."""
    protocol, runs, figure = settings["protocol"], dict[str, RunFolder](), ""
    wanted = ARTEFACTS if artefact == "all" else (artefact,)
    if "table1" in wanted:
        runs["table1"] = run_table1(settings["table1"], folder / "table1", engine)
    if "table2" in wanted:
        runs["table2"] = run_table2(protocol, folder / "table2", home)
    if "table3" in wanted or "figure1" in wanted:
        selected = RunFolder(folder / "selection", protocol, key=("dataset", "split", "method"))
    if "table3" in wanted:
        methods = settings["table3"]["methods"]
        runs["table3"] = run_table3(protocol, methods, folder / "table3", selected, home, engine)
    if "figure1" in wanted:
        alphas = settings["figure1"]["alphas"]
        runs["figure1"] = run_figure1(protocol, alphas, folder / "figure1", selected, home, engine)
        figure = (folder / "figure1" / "figure1.svg").read_text()
    tables = [table for run in runs.values() for table in run.tables]
    if artefact == "all":
        tables.append(claims(runs["table1"].rows, runs["table3"].rows, runs["figure1"].rows, protocol))
        write_atomic(folder / "claims.md", tables[-1].markdown())
    # A single artefact has its own page, so that it does not replace that of all.
    write_atomic(folder / ("report.html" if artefact == "all" else f"{artefact}.html"), _page(tables, figure))
    return Reproduction(folder, [table.markdown() for table in tables])


def _page(tables: list[Table], figure: str) -> str:
    """One self-contained page."""
    template = resources.files("crcen.paper").joinpath("report.html.j2").read_text(encoding="utf-8")
    sections = [table.html() for table in tables]
    if figure:
        at = next(i for i, table in enumerate(tables) if table.title.startswith("Figure 1"))
        sections.insert(at, f"<section><h2>Figure 1</h2>{figure[figure.index('<svg') :]}</section>")
    return jinja2.Template(template, keep_trailing_newline=True).render(sections=sections, version=crcen.__version__)
