"""Cause failures in running fits on Ray, and compare the results with those of an undisturbed fit.

    unshare -rn sh -c 'ip link set lo up && python -m bench.validity.ray_faults --out results/validity/ray_faults.txt'

The cluster runs on this machine, in a network namespace with only the loopback interface. The files are uneven, have
different number types, and one of them has no positive row. A failure is caused after the first checkpoint.
"""

import argparse
import logging
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import crcen
from crcen.exceptions import DataUnavailable
from crcen.scale.committee import GrownTrees, plan_trees
from crcen.scale.ray import grow_trees_on_ray
from crcen.scale.sources import ArrowSource
from crcen.theory.price import Labels

TESTS = str(Path(__file__).resolve().parents[2] / "tests" / "scale")
sys.path.insert(0, TESTS)
os.environ["PYTHONPATH"] = os.pathsep.join([TESTS, *filter(None, [os.environ.get("PYTHONPATH")])])
from ray_striking import (  # noqa: E402
    KilledTrees,
    checkpoints,
    events_of,
    log_loss,
    one_worker,
    write_files,
)

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ROWS, SIZES = 60_000, [2_000, 21_000, 9_000, 14_000, 3_000]
SETTINGS = {"epochs": 4, "hidden": (16,), "random_state": 0, "buffer_rows": 4096, "checkpoint_rows": 10_000}
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}


def pids_of(title: str) -> list[int]:
    """Processes of our own network whose title holds a text."""
    own, found = os.stat("/proc/thread-self/ns/net").st_ino, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if title in (folder / "cmdline").read_text() and os.stat(folder / "ns/net").st_ino == own:
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


@contextmanager
def striking(storage: Path, strike):
    """Call ``strike`` once, from another thread, when a checkpoint is there; yields a list of what it returned."""
    struck, is_over = [], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            if checkpoints(storage):
                struck.append(strike())
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield struck
    finally:
        is_over.set()
        thread.join()


def products(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and classes that need several hundred trees, so that checkpoints come before the end."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(2.0 * X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=n) > 2.0, "event", "none")


def grow(files: list[Path], storage: Path, struck: Path | None = None) -> GrownTrees:
    """Trees of two workers; their number is chosen on rows that are in no file. ``struck``: where one is killed."""
    labels = Labels(np.array(["event", "none"]), "event")
    X, kinds = products(20_000, 1)
    plan = plan_trees([X], labels, ROWS, 10**9)
    source = ArrowSource(files, "kind")
    if struck is not None:
        source = KilledTrees(files, "kind")
        source.storage = struck
    held_out = plan.codes(X), labels.target(kinds)
    return grow_trees_on_ray(plan, source, held_out, storage=storage)


class Faults:
    """The undisturbed fit, and one line a fault."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.lines = folder, events_of(ROWS), []
        self.files = write_files(folder / "data", self.events, SIZES)
        self.X, self.y = self.events.sample(100_000)
        self.calm = None

    def fit(self, storage: Path, **changes) -> crcen.CRCENClassifier:
        """Fit with the common settings."""
        return crcen.fit_ray(**{"source": self.files, "target": "kind", "storage": storage, **SETTINGS, **changes})

    def say(self, name: str, passed: bool, seconds: float, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{'pass' if passed else 'FAIL'}  {name:<46} {seconds:4.0f} s  {text}")
        print(self.lines[-1], flush=True)

    def undisturbed(self) -> None:
        """What all others are compared with."""
        start = time.monotonic()
        self.calm = self.fit(self.folder / "calm")
        p = self.events.posterior(self.X)
        best = -np.log(np.where(self.y, p, 1 - p)).mean()
        residual = self.calm.key_equation_.residual
        text = f"test log loss {self.loss(self.calm):.5f}, best possible {best:.5f}, key equation {residual:.0e}"
        self.say("no fault", residual < 1e-10, time.monotonic() - start, text)

    def loss(self, model: crcen.CRCENClassifier) -> float:
        """Log loss on rows that are in no file."""
        return log_loss(model, self.X, self.y)

    def survived(
        self,
        name: str,
        storage: Path,
        start: float,
        model: crcen.CRCENClassifier,
        is_struck: bool,
        restarts: bool = True,
    ) -> None:
        """Compare with the undisturbed fit; a fault that came too late proves nothing."""
        pairs = zip([*model.coefs_, *model.intercepts_], [*self.calm.coefs_, *self.calm.intercepts_], strict=True)
        apart = max(float(np.abs(one - other).max()) for one, other in pairs)
        started = started_at(storage)
        difference = self.loss(model) - self.loss(self.calm)
        text = f"went on from row {started:,}" if restarts else "its files were read again"
        text += f"; log loss differs by {difference:.1e}, weights by {apart:.1e}"
        passed = is_struck and (started > 0) == restarts and abs(difference) < 1e-3
        self.say(name, passed, time.monotonic() - start, text)

    def strike(self, name: str, strike, restarts: bool = True, **changes) -> None:
        """Fit, and strike on the way."""
        start, storage = time.monotonic(), self.folder / name.replace(" ", "-").replace(",", "")
        with striking(storage, strike) as struck:
            model = self.fit(storage, **changes)
        self.survived(name, storage, start, model, struck != [] and struck != [0], restarts)

    def worker(self, name: str, fate: str, **changes) -> None:
        """Fit, and let one worker meet a fate."""
        start, storage = time.monotonic(), self.folder / fate.replace(" ", "-")
        with one_worker(storage, fate) as struck:
            model = self.fit(storage, **changes)
        self.survived(name, storage, start, model, struck.exists())

    def driver_killed(self) -> None:
        """The process that called `fit_ray` dies, and another calls it again."""
        start, storage = time.monotonic(), self.folder / "driver"
        is_struck = self.kill_driver("--fit", self.files, storage)
        self.survived("driver killed, called again", storage, start, self.fit(storage), is_struck)

    def kill_driver(self, what: str, files: list[Path], storage: Path) -> bool:
        """Start a fit or the trees in another process and kill it at its first checkpoint; False if it ended before."""
        command = [sys.executable, "-m", "bench.validity.ray_faults", what, str(files[0].parent), str(storage)]
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not checkpoints(storage) and driver.poll() is None:
            time.sleep(0.02)
        is_struck = driver.poll() is None
        driver.kill()
        driver.wait()
        return is_struck

    def trees(self) -> None:
        """Trees undisturbed, with a worker killed, and with the driver killed and called again."""
        start = time.monotonic()
        X, kinds = products(ROWS, 0)
        (self.folder / "products").mkdir()
        columns = {f"x{j}": X[:, j] for j in range(4)}
        self.products = [self.folder / "products" / "0.parquet"]
        pq.write_table(pa.table({**columns, "kind": kinds}), self.products[0], row_group_size=700)
        self.calm_trees = grow(self.products, self.folder / "calm-trees")
        text = f"{len(self.calm_trees.losses)} trees, log loss {min(self.calm_trees.losses):.5f}"
        self.say("trees, no fault", self.calm_trees.is_done, time.monotonic() - start, text)
        start, storage = time.monotonic(), self.folder / "struck-trees"
        storage.mkdir()
        grown = grow(self.products, storage, storage)
        self.grown("trees, worker killed", storage, start, grown, (storage / "struck").exists())
        start, storage = time.monotonic(), self.folder / "driver-trees"
        is_struck = self.kill_driver("--grow", self.products, storage)
        self.grown("trees, driver killed, called again", storage, start, grow(self.products, storage), is_struck)

    def grown(self, name: str, storage: Path, start: float, trees: GrownTrees, is_struck: bool) -> None:
        """Compare with the undisturbed trees; later trees draw other columns, so they are not the same."""
        difference = min(trees.losses) - min(self.calm_trees.losses)
        text = f"went on from tree {started_at(storage)}; log loss differs by {difference:.1e}"
        passed = is_struck and started_at(storage) > 0 and trees.is_done and abs(difference) < 1e-3
        self.say(name, passed, time.monotonic() - start, text)

    def file_gone(self) -> None:
        """A file goes while workers train, and comes back."""
        start, storage, file = time.monotonic(), self.folder / "gone", self.files[1]
        aside = file.with_suffix(".aside")
        with striking(storage, lambda: file.rename(aside)):
            refused = refusal(DataUnavailable, lambda: self.fit(storage))
        aside.rename(file)
        self.say("file gone while training", file.name in refused, time.monotonic() - start, shortened(refused, file))
        start = time.monotonic()
        self.survived("file put back, called again", storage, start, self.fit(storage), True)

    def bad_files(self) -> None:
        """Refused before training, by name."""
        file, content = self.files[2], self.files[2].read_bytes()
        table = pq.read_table(file)
        as_text = table.set_column(0, "x0", table["x0"].cast("string"))
        writes = {
            "file cut short": lambda: file.write_bytes(content[: len(content) // 2]),
            "file with a damaged page": lambda: file.write_bytes(
                content[:300] + np.random.default_rng(0).bytes(3000) + content[3300:]
            ),
            "column of another type": lambda: pq.write_table(as_text, file),
            "file listed but not there": file.unlink,
        }
        for name, write in writes.items():
            start = time.monotonic()
            write()
            refused = refusal(crcen.CrcenError, lambda: self.fit(self.folder / "bad"))
            self.say(name, file.name in refused, time.monotonic() - start, shortened(refused, file))
        file.write_bytes(content[: len(content) // 2])
        start = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = self.fit(self.folder / "skipped", skip_bad_files=True)
        named = [str(one.message) for one in caught if file.name in str(one.message)]
        text = f"log loss {self.loss(model):.5f}; {shortened(named[0], file) if named else 'no warning'}"
        self.say("file cut short, skip_bad_files=True", bool(named), time.monotonic() - start, text)
        file.write_bytes(content)


def started_at(storage: Path) -> int:
    """Rows seen at the start of the last attempt."""
    return max((int(one["started_at"]) for one in checkpoints(storage)), default=0)


def refusal(kind: type[Exception], call) -> str:
    """What an error said, or nothing."""
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


def shortened(text: str, file: Path) -> str:
    """A sentence without folders."""
    return text.replace(f"{file.parent}/", "")[:110]


def kill_a_reader() -> int:
    """Kill a process while it reads; 0 if none was met for a while."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for pid in pids_of("ray::MapBatches"):
            os.kill(pid, signal.SIGKILL)
            return pid
    return 0


def machine_killed(faults: Faults, of_trees: bool = False) -> None:
    """Of two machines the one with the workers dies; the other, busy until then, takes over."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    busy = ray.remote(num_cpus=2)(Busy).remote()
    ray.get(busy.there.remote())
    second = cluster.add_node(num_cpus=3)

    def strike() -> bool:
        cluster.remove_node(second, allow_graceful=False)
        ray.kill(busy)
        return True

    name = "machine killed, the other goes on"
    if of_trees:
        start, storage = time.monotonic(), faults.folder / "machine-trees"
        with striking(storage, strike) as struck:
            trees = grow(faults.products, storage)
        faults.grown(f"trees, {name}", storage, start, trees, struck == [True])
    else:
        faults.strike(name, strike)
    ray.shutdown()
    cluster.shutdown()


class Busy:
    """Holds CPUs."""

    def there(self) -> bool:
        """Whether it has them."""
        return True


def main() -> None:
    """Run all, print and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fit", nargs=2, type=Path, help="only fit: files, and where checkpoints go")
    parser.add_argument("--grow", nargs=2, type=Path, help="only grow trees: files, and where checkpoints go")
    parser.add_argument("--only", help="worker, memory, starved, reader, gone, bad, driver, machine or trees")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.fit:
        crcen.fit_ray(sorted(options.fit[0].glob("*.parquet")), "kind", storage=options.fit[1], **SETTINGS)
        return
    if options.grow:
        grow(sorted(options.grow[0].glob("*.parquet")), options.grow[1])
        return
    import ray

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(Path(folder))
        scenarios = {
            "worker": lambda: faults.worker("worker killed in the middle of an epoch", "killed"),
            "memory": lambda: faults.worker("worker out of memory", "refused memory"),
            "starved": lambda: faults.worker("worker that gets no more memory", "starved", worker_timeout=30),
            "reader": lambda: faults.strike("reader killed", kill_a_reader, restarts=False),
            "gone": faults.file_gone,
            "bad": faults.bad_files,
            "driver": faults.driver_killed,
            "trees": faults.trees,
            "machine": lambda: machine_killed(faults),
            "machine of trees": lambda: machine_killed(faults, of_trees=True),
        }
        for name in (None, *scenarios):
            if name in ("machine", "machine of trees"):
                ray.shutdown()
            elif not ray.is_initialized():
                ray.init(address="local", num_cpus=4, **QUIET)
            if name is None and options.only != "trees":
                faults.undisturbed()
            elif options.only in (None, name) or (options.only == "trees" and name == "machine of trees"):
                scenarios[name]()
    uneven = f" in {len(SIZES) + 1} uneven files, {SETTINGS['epochs']} epochs"
    rows = f"{ROWS:,} rows{'' if options.only == 'trees' else uneven}, 2 workers"
    head = (
        f"{rows}; Ray {ray.__version__}, {os.cpu_count()} cores, {platform.system()}; {time.monotonic() - begin:.0f} s"
    )
    text = "\n".join([head, "", *faults.lines, ""])
    if options.out:
        temporary = options.out.with_suffix(".part")
        temporary.write_text(text)
        temporary.replace(options.out)
    if any(line.startswith("FAIL") for line in faults.lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
