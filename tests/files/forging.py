"""Model files made by hand: taken apart, changed, and signed again. As a script: load them under limits."""

import copy
import hashlib
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from crcen import CrcenError, load, model_info


def mixed_rows(x, gaps, rng):
    """Rows with a column of every kind; the numbers ``x`` have ``gaps``."""
    words = rng.choice(["red", "green", "blue"], len(x))
    columns = {"x": np.where(gaps, np.nan, x), "c": rng.choice(["a", "b", "c"], len(x)), "b": rng.random(len(x)) < 0.5}
    when = pd.date_range("2024-01-01", periods=len(x), freq="5h").strftime("%Y-%m-%d %H:%M")
    return pd.DataFrame({**columns, "when": when, "note": [f"{word} number {i}" for i, word in enumerate(words)]})


def parts(content):
    """Manifest, tree and bytes of a model file's content."""
    _, _, manifest, sizes, packed = content.split(b"\n", 4)
    sizes = json.loads(sizes)
    raw = zlib.decompress(packed) if sizes["is_compressed"] else packed
    return json.loads(manifest), json.loads(raw[: sizes["tree"]]), raw[sizes["tree"] :]


def signed(body, title=b"crcen model, format 9\n"):
    """A file with this under its checksum, which is right."""
    return title + hashlib.sha256(title + body).hexdigest().encode() + b"\n" + body


def forged(manifest, tree, data, sizes=None, packed=None):
    """A file with these parts and a right checksum; ``tree`` may be bytes, to be taken as they are."""
    tree = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    said = {"tree": len(tree), "data": len(data), "is_compressed": True} | (sizes or {})
    packed = zlib.compress(tree + data) if packed is None else packed
    manifest = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    return signed(manifest + b"\n" + json.dumps(said).encode() + b"\n" + packed)


def places(tree):
    """Every place in a tree, as the container and the key in it."""
    found, waiting = [], [tree]
    while waiting:
        one = waiting.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            found.append((one, key))
            if isinstance(one[key], dict | list):
                waiting.append(one[key])
    return found


def mutated(tree, rng):
    """The tree with one to three places changed, removed, renamed or exchanged."""
    tree = copy.deepcopy(tree)
    nested = None
    for _ in range(300):
        nested = [nested]
    strange = [
        *(None, True, -1, 0, 1, 7, 10**18, 10**400, 0.5, 1e308, "", "x", "x" * 10_000, "\x1b[2J", "\ud800", [], {}),
        *([[]] * 5, {"float": "nan"}, {"float": "x"}, {"tuple": []}, {"tuple": 3}, {"set": []}, {"again": 0}),
        *({"again": -1}, {"again": 10**9}, {"dict": [["a"], []]}, {"dict": [["a", "a"], [1, 2]]}, {"dict": 1}),
        *({"array": ["<f8", [10**9]]}, {"array": ["<f8", [-1]]}, {"array": ["<f8", [2, 2]]}, {"array": []}, nested),
        *({"array": ["|O", [1]]}, {"array": ["<f8", [0, 10**15]]}, {"array": ["<U5", [3]]}, {"array": ["<f8", "ab"]}),
        *({"scalar": "<f8"}, {"scalar": "<U99999"}, {"scalar": 3}, {"dict": [[10**30], [1]]}, {"dict": [[[]], [1]]}),
        *({"objects": [[10**9], []]}, {"objects": [[2], ["a", {}]]}, {"masked": [None, None]}, {"random_state": [1]}),
        *({"type": name} for name in ("str", "eval", "os.system")),
        *({"is": "Popen", "state": {}}, {"is": [], "state": 1}, {"is": "KFold"}),
        *({"is": "Budget", "state": {"value": -1}}, {"is": "Budget", "state": {"value": 2}}),
        *({"is": "NumberColumn", "state": {"name": "x", "fill": "y", "has_missing": False}}, {"value": 1}),
        {"is": "TableClassifier", "state": {}},
    ]
    for _ in range(rng.integers(1, 4)):
        all_places = places(tree)
        inside, key = all_places[rng.integers(len(all_places))]
        kind = rng.integers(5)
        if kind < 2:
            inside[key] = strange[rng.integers(len(strange))]
        elif kind == 2:
            del inside[key]
        elif kind == 3 and isinstance(inside, dict):
            inside[str(rng.choice(["predict", "__class__", "input", "n_parts", "", "é"]))] = inside.pop(key)
        else:
            other, its = all_places[rng.integers(len(all_places))]
            inside[key] = copy.deepcopy(other[its])
    return tree


def bitten(data, rng):
    """The bytes with a few of them changed."""
    array = np.frombuffer(data, dtype=np.uint8).copy()
    where = rng.integers(len(array), size=rng.integers(1, 30))
    array[where] = rng.choice([0, 1, 0x7F, 0x80, 0xF0, 0xFF], size=len(where))
    return array.tobytes()


MEMORY, SECONDS = 400 << 20, 5


def used():
    """Address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def outcome(path, rows, read):
    """What reading a file and using the model came to."""
    start = time.monotonic()
    try:
        found = read(path)
        if read is load:
            names = [name for name in getattr(found, "feature_names_in_", rows.columns) if name in rows.columns]
            found.predict_proba(rows[names])
        else:
            assert all(letter.isprintable() or letter == "\n" for letter in str(found))
        said = "fine"
    except CrcenError as error:
        sentence = str(error)
        said = f"refused: {sentence}" if sentence.isprintable() and len(sentence) < 700 else f"no sentence: {sentence}"
    except BaseException:
        said = traceback.format_exc()
    return said, time.monotonic() - start


def main(folder):
    """Load every file of a folder under limits of memory and time.

    Prints one line of JSON a file: name, what came of loading it, of looking at its header, and the seconds.
    """
    warnings.simplefilter("ignore")
    rows = pd.read_csv(folder / "rows.csv")
    outcome(folder / "whole.crcen", rows, load)  # imports what loading needs
    resource.setrlimit(resource.RLIMIT_AS, (used() + MEMORY,) * 2)

    def late(number, frame):
        raise TimeoutError("too long")

    signal.signal(signal.SIGALRM, late)
    for path in sorted(folder.glob("*.crcen")):
        signal.alarm(SECONDS)
        said, seconds = outcome(path, rows, load)
        about, _ = outcome(path, rows, model_info)
        signal.alarm(0)
        print(json.dumps([path.name, said, about, seconds]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
