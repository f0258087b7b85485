"""What folders of tests share: one thread a worker, places of data, small rows, a user without rights, a full disk."""

import importlib.util
import os
import signal
import subprocess
import tempfile
from pathlib import Path

# Read by OpenMP when torch loads it, so it must be set before. Two workers with two threads each only wait.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import example_rows

if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("crcen", deadline=None)  # a slow shared machine is not a failing test
    settings.load_profile("crcen")


@pytest.fixture(scope="session")
def data_home():
    """The benchmark's files in imbalanced-learn's cache layout, from CRCEN_DATA_HOME."""
    home = Path(os.environ.get("CRCEN_DATA_HOME") or "nowhere")
    if not (home / "zenodo").is_dir():
        pytest.skip("no copy of the benchmark: set CRCEN_DATA_HOME")
    return home


@pytest.fixture(scope="session")
def rare_rows():
    """A function that draws overlapping classes, 1 = rare, in columns of different place and size."""
    return example_rows.rare_rows


@pytest.fixture
def crcen_command(monkeypatch, capsys, tmp_path):
    """Run the entry point with these arguments → exit code, standard output, standard error."""
    from crcen import CrcenError, InvalidParameter, cli

    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.setenv("CRCEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TERMINAL_WIDTH", "200")

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["crcen", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        if isinstance(caught.value.__context__, CrcenError):  # a wrong option is usage
            assert caught.value.code == 1 + isinstance(caught.value.__context__, InvalidParameter)
        return caught.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Problems are small: a second thread costs more than it brings, above all beside other test processes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def closed_folder():
    """A folder with a file in it that this user may not read, and a folder that they may not enter."""
    if os.name == "nt":
        pytest.skip("Windows keeps permissions another way")
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which others may not enter
        home = Path(name)
        home.chmod(0o755)
        for folder, file in (("open", "closed.csv"), ("closed", "open.csv")):
            (home / folder).mkdir()
            (home / folder / file).write_text("a,b\n1,2\n")
        (home / "open" / "closed.csv").chmod(0)
        (home / "closed").chmod(0)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)  # root may read anything
        try:
            yield home
        finally:
            if is_root:
                os.seteuid(0)
            (home / "closed").chmod(0o755)


@pytest.fixture
def small_files():
    """No file may grow beyond 4,096 bytes: a write then fails in the middle, as on a full disk."""
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 32 kB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a small tmpfs cannot be mounted here; the limit on file sizes stands in for it")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="session")
def chromium():
    """One headless browser for all tests of a process."""
    script = Path(__file__).resolve().parents[1] / "scripts" / "headless_chromium.py"
    spec = importlib.util.spec_from_file_location("headless_chromium", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = module.find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed")
    with module.Chromium(program) as browser:
        yield browser
