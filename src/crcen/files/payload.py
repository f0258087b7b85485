"""Objects as a JSON tree and a run of bytes, and back: the payload of a model file.

The tree holds ``null``, booleans, numbers, strings and lists as they are, and everything else as an object with one
key, such as ``{"tuple": list}``, ``{"dict": [keys, values]}`` or ``{"array": [dtype, shape]}``. An object of a listed
type is ``{"is": name, "state": {...}}``; ``{"again": n}`` is the n-th object or array, counted from 0 as they end.

Reading is one walk in the order of writing. Arrays have no offsets: each takes the bytes after the previous one, and
all bytes must be used. So each byte belongs to one array, and memory is proportional to the size of the file.
References point backwards only, so there are no cycles.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crcen._support.text import reject_constant
from crcen.files.registry import PLAIN_TYPES, InvalidState, check_state, create, find_type, is_known, state_of

_DEPTH = 40
_DIMENSIONS = 8
_KINDS = "biufU"
_RANDOM_KEYS = 624  # of the Mersenne Twister
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# Keys other than strings: few, and without equal hashes. Python hashes integers modulo this prime, without a seed.
_MOST_KEYS, _HASH_PRIME = 1000, 2**61 - 1

Array = np.ndarray[Any, np.dtype[Any]]


class NotStorable(TypeError):
    """Something that a file may not hold; the message is its type and the attribute that holds it."""


def pack(value: object) -> tuple[bytes, bytes]:
    """The tree and the bytes of a value; raises `NotStorable` for other types than the listed ones."""
    packer = _Packer()
    tree = packer.node(value, "the model", 0)
    return json.dumps(tree, allow_nan=False, separators=(",", ":")).encode(), b"".join(packer.data)


def unpack(tree: bytes, data: bytes) -> object:
    """The value of a tree and its bytes; raises `InvalidState`, or errors of Python if the tree cannot be read."""
    unpacker = _Unpacker(data)
    found = unpacker.value(json.loads(tree, parse_constant=reject_constant), 0)
    if unpacker.position != len(data):
        raise InvalidState("bytes that belong to no array")
    return found


class _Packer:
    def __init__(self) -> None:
        self.data: list[bytes] = []
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is used twice

    def node(self, value: Any, where: str, depth: int) -> object:
        kind = type(value)
        if depth > _DEPTH:
            raise NotStorable(f"endless nesting as {where}")
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind in (list, tuple):
            items = self._nodes(value, where, depth)
            return items if kind is list else {"tuple": items}
        if kind is dict:
            keys = self._nodes(value, where, depth)
            return {"dict": [keys, [self.node(one, str(key), depth + 1) for key, one in value.items()]]}
        if isinstance(value, type):
            if PLAIN_TYPES.get(kind_name := value.__name__) is not value and not is_known(value):
                raise NotStorable(f"the type {value.__module__}.{value.__qualname__} as {where}")
            return {"type": kind_name}
        if kind is slice:
            return {"slice": [self.node(one, where, depth + 1) for one in (value.start, value.stop, value.step)]}
        if isinstance(value, np.dtype) and (value.kind in _KINDS or value.str == "|O"):
            return {"dtype": value.str}
        if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
            self.data.append(np.asarray(value).tobytes())
            return {"scalar": value.dtype.str}
        if kind is np.random.RandomState:
            name, keys, *rest = value.get_state()
            return {"random_state": [name, keys.tolist(), *map(float, rest)]}
        if id(value) in self._seen:
            return {"again": self._seen[id(value)]}
        if kind is np.ndarray:
            found = self._array(value, where, depth)
        elif kind is np.ma.MaskedArray:
            parts = (np.asarray(value.data), np.ma.getmaskarray(value))
            found = {"masked": [self._array(part, where, depth) for part in parts]}
        elif is_known(kind):
            state = {name: self.node(one, f"its {name}", depth + 1) for name, one in state_of(value).items()}
            found = {"is": kind.__name__, "state": state}
        else:
            raise NotStorable(f"{kind.__module__}.{kind.__qualname__} as {where}")
        self._seen[id(value)] = len(self._kept)  # later nodes may refer to it
        self._kept.append(value)
        return found

    def _nodes(self, items: Any, where: str, depth: int) -> list[object]:
        return [self.node(item, where, depth + 1) for item in items]

    def _array(self, array: Array, where: str, depth: int) -> object:
        shape = [int(size) for size in array.shape]
        if array.dtype == object:
            return {"objects": [shape, self._nodes(array.ravel().tolist(), where, depth + 1)]}
        if array.dtype.kind not in _KINDS or array.dtype.hasobject:
            raise NotStorable(f"an array of {array.dtype} as {where}")
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        self.data.append(np.ascontiguousarray(little).tobytes())
        return {"array": [little.dtype.str, shape]}


class _Unpacker:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0
        self._created: list[object] = []
        self._limit = len(data) + 1_000_000  # of a dimension, also of empty arrays
        self._readers: dict[str, Callable[[Any, int], object]] = {
            "float": lambda content, depth: _FLOATS[content],
            "tuple": lambda content, depth: tuple(self._items(content, depth)),
            "dict": self._dict,
            "array": lambda content, depth: self._noted(self._numbers(*content)),
            "scalar": lambda content, depth: self._numbers(content, [])[()],
            "objects": lambda content, depth: self._noted(self._objects(content, depth)),
            "masked": self._masked,
            "random_state": self._random_state,
            "slice": self._slice,
            "dtype": lambda content, depth: np.dtype(object) if content == "|O" else self._dtype(content),
            "type": self._type,
            "again": self._again,
        }

    def value(self, node: Any, depth: int) -> Any:
        if depth > 3 * _DEPTH:
            raise InvalidState("endless nesting")
        if node is None or isinstance(node, bool | int | float):
            return node
        if isinstance(node, str):
            node.encode()  # rejects halves of surrogate pairs, which no terminal or JSON accepts
            return node
        if isinstance(node, list):
            return [self.value(item, depth + 1) for item in node]
        if "is" in node:
            return self._object(node, depth)
        if len(node) != 1:
            raise InvalidState("a node without a kind")
        ((name, content),) = node.items()
        if name not in self._readers:
            raise InvalidState(f"a node of the kind {name[:40]!r}")
        return self._readers[name](content, depth + 1)

    def _object(self, node: dict[str, Any], depth: int) -> object:
        kind = find_type(node["is"])
        if kind is None:
            raise InvalidState(f"{str(node['is'])[:80]}, which no model of crcen needs")
        if set(node) != {"is", "state"} or not isinstance(node["state"], dict):
            raise InvalidState(f"{node['is']} without a state")
        state = {name: self.value(one, depth + 1) for name, one in node["state"].items()}
        check_state(kind, state)
        if _size(state.get("n_features_in_", 0)) > self._limit:
            raise InvalidState(f"{node['is']} with more columns than the file has room for")
        return self._noted(create(kind, state))

    def _noted(self, value: object) -> object:
        self._created.append(value)
        return value

    def _items(self, node: object, depth: int) -> list[Any]:
        found = self.value(node, depth)
        if not isinstance(found, list):
            raise InvalidState("something other than a list in the place of one")
        return found

    def _dict(self, content: Any, depth: int) -> object:
        keys, values = (self._items(part, depth) for part in content)
        others = [key for key in keys if not isinstance(key, str)]
        if len(others) > _MOST_KEYS or not all(_is_key(key) for key in others):
            raise InvalidState("a dict with keys that are not allowed")
        found = dict(zip(keys, values, strict=True))
        if len(found) != len(keys):
            raise InvalidState("a dict with a repeated key")
        return found

    def _numbers(self, dtype: object, shape: Any) -> Array:
        kind, count = self._dtype(dtype), self._count(shape)
        end = self.position + count * kind.itemsize
        if end > len(self._data):
            raise InvalidState("an array that is longer than the file")
        raw = self._data[self.position : end]
        self.position = end
        if kind.kind == "b" and raw.strip(b"\x00\x01"):
            raise InvalidState("booleans other than 0 and 1")
        if kind.kind == "U":
            points = np.frombuffer(raw, dtype="<u4")
            if ((points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000))).any():
                raise InvalidState("invalid characters")
        return np.frombuffer(raw, dtype=kind, count=count).reshape(shape).copy()

    def _dtype(self, name: object) -> np.dtype[Any]:
        kind = np.dtype(name) if isinstance(name, str) and len(name) < 16 else None
        if kind is None or kind.kind not in _KINDS or kind.str != name or kind.itemsize == 0:
            raise InvalidState(f"an array of {str(name)[:40]}")
        return kind

    def _count(self, shape: object) -> int:
        if not isinstance(shape, list) or len(shape) > _DIMENSIONS:
            raise InvalidState("an array without a shape")
        if any(_size(size) > self._limit for size in shape):
            raise InvalidState("an array that is longer than the file")
        return math.prod(shape)

    def _objects(self, content: Any, depth: int) -> Array:
        shape, items = content
        found = self._items(items, depth)
        if self._count(shape) != len(found):
            raise InvalidState("an array with another size than its items")
        array = np.empty(len(found), dtype=object)
        for i, one in enumerate(found):
            array[i] = one
        return array.reshape(shape)

    def _masked(self, content: Any, depth: int) -> object:
        values, mask = (  # which have no number of their own
            self._numbers(*node["array"]) if "array" in node else self._objects(node["objects"], depth)
            for node in content
        )
        if values.shape != mask.shape or mask.dtype != bool:
            raise InvalidState("a mask with another shape than its values")
        return self._noted(np.ma.MaskedArray(values, mask=mask))

    def _random_state(self, content: Any, depth: int) -> object:
        name, keys, position, has_gauss, gauss = content
        if not 0 <= position <= len(keys) == _RANDOM_KEYS:  # NumPy would read memory outside the keys
            raise InvalidState("a random state with another number of keys")
        found = np.random.RandomState()
        found.set_state((name, keys, int(position), int(has_gauss), float(gauss)))
        return found

    def _slice(self, content: Any, depth: int) -> object:
        if len(content) != 3 or any(one is not None and type(one) is not int for one in content):
            raise InvalidState("a slice without numbers")
        return slice(*content)

    def _type(self, content: object, depth: int) -> object:
        found = PLAIN_TYPES.get(str(content)) or find_type(content)
        if found is None:
            raise InvalidState(f"the type {str(content)[:80]}, which no model of crcen needs")
        return found

    def _again(self, content: object, depth: int) -> object:
        if _size(content) >= len(self._created):
            raise InvalidState("a reference to nothing")
        return self._created[_size(content)]


def _is_key(key: object) -> bool:
    key = key.item() if isinstance(key, np.generic) else key
    return key is None or isinstance(key, float | bool) or (type(key) is int and abs(key) < _HASH_PRIME)


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidState(f"the size {str(value)[:40]}")
    return value
