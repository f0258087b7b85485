"""Model files made by hand: taken apart, changed, and signed again."""

import copy
import hashlib
import json
import zlib

import numpy as np


def parts(content):
    """Manifest, tree and bytes of a model file's content."""
    _, _, manifest, sizes, packed = content.split(b"\n", 4)
    sizes = json.loads(sizes)
    raw = zlib.decompress(packed) if sizes["is_compressed"] else packed
    return json.loads(manifest), json.loads(raw[: sizes["tree"]]), raw[sizes["tree"] :]


def signed(body, title=b"crcen model, format 7\n"):
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
        *(
            {"type": "str"},
            {"type": "eval"},
            {"type": "os.system"},
            {"is": "Popen", "state": {}},
            {"is": [], "state": 1},
        ),
        *({"is": "Budget", "state": {"value": -1}}, {"is": "Budget", "state": {"value": 2}}, {"is": "KFold"}),
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
