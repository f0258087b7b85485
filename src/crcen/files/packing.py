"""Objects as a tree of JSON and a run of bytes, and back: the payload of a model file.

The tree holds ``null``, truth values, numbers, strings and lists as they are, and everything else as an object with one
key that says what it is:

============================================  ==============================================================
``{"float": "nan"}``                          a number that JSON has not
``{"tuple": list}``, ``{"set": list}``        a list made into one
``{"dict": [list of keys, list of values]}``
``{"array": [dtype, shape, offset]}``         an array whose bytes stand at the offset, in this order
``{"scalar": [dtype, offset]}``               a NumPy scalar
``{"numbers": array}``                        a long list of numbers
``{"texts": [offset, length]}``               a long list of strings, as JSON among the bytes
``{"objects": [shape, list]}``                an array of Python values
``{"masked": [array, array]}``                a masked array: values and mask
``{"random_state": list}``                    NumPy's old generator
``{"slice": [start, stop, step]}``            a slice
``{"dtype": name}``                           a NumPy dtype
``{"type": name}``                            a type from `PLAIN_TYPES`, or a listed one
``{"is": name, "state": {...}}``              an object of a listed type
``{"again": n}``                              the n-th object or array of the file, counted from 0 as they end
============================================  ==============================================================

Reading is one walk. It makes nothing before its size is known to lie inside the bytes that are there, so a file costs
memory in proportion to its size. References point back only, so there are no circles.
"""

import json
import math
from typing import Any

import numpy as np

from crcen.files.known_types import PLAIN_TYPES, Unfit, check_state, find_type, is_known, made, state_of

__all__ = ["Unpackable", "pack", "unpack"]

_LONG = 16
_DEPTH = 40
_DIMENSIONS = 8
_KINDS = "biufU"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Unpackable(TypeError):
    """Something that a file may not hold; ``what`` is its type, ``where`` the way to it."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} as {where}")
        self.what, self.where = what, where


def pack(value: Any) -> tuple[bytes, bytes]:
    """The tree and the bytes of a value.

    Raises
    ------
    Unpackable
        If it holds something else than listed types.
    """
    packer = _Packer()
    tree = packer.node(value, "the model", 0)
    return json.dumps(tree, allow_nan=False, separators=(",", ":")).encode(), b"".join(packer.data)


def unpack(tree: bytes, data: bytes) -> Any:
    """The value of a tree and its bytes.

    Raises
    ------
    Unfit
        If a type is not listed, a state does not fit its type, or a node is not one of the above.
    ValueError, TypeError, KeyError, RecursionError, OverflowError, MemoryError
        If the tree cannot be read.
    """
    return _Unpacker(data).value(json.loads(tree, parse_constant=_no_constant), 0)


def _no_constant(text: str) -> Any:
    raise Unfit(f"the number {text}")


class _Packer:
    def __init__(self) -> None:
        self.data: list[bytes] = []
        self._length = 0
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice

    def node(self, value: Any, where: str, depth: int) -> Any:
        kind = type(value)
        if depth > _DEPTH:
            raise Unpackable("nesting without end", where)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind in (list, tuple, set):
            items = self._list(list(value), where, depth)
            return items if kind is list else {kind.__name__: items}
        if kind is dict:
            keys, values = list(value), list(value.values())
            return {"dict": [self._list(keys, where, depth), self._values(keys, values, where, depth)]}
        if isinstance(value, type):
            return {"type": self._type_name(value, where)}
        if kind is slice:
            return {"slice": [self.node(one, where, depth + 1) for one in (value.start, value.stop, value.step)]}
        if isinstance(value, np.dtype) and (value.kind in _KINDS or value.str == "|O"):
            return {"dtype": value.str}
        if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
            return {"scalar": [value.dtype.str, self._put(np.asarray(value).tobytes())]}
        if kind is np.random.RandomState:
            name, keys, *rest = value.get_state()
            return {"random_state": [name, self._array(keys, where, depth), *map(float, rest)]}
        if id(value) in self._seen:
            return {"again": self._seen[id(value)]}
        if kind is np.ndarray:
            return self._noted(value, self._array(value, where, depth))
        if kind is np.ma.MaskedArray:
            mask = np.ma.getmaskarray(value)
            parts = [self._array(np.asarray(value.data), where, depth), self._array(mask, where, depth)]
            return self._noted(value, {"masked": parts})
        if is_known(kind):
            state = {name: self.node(one, f"its {name}", depth + 1) for name, one in state_of(value).items()}
            return self._noted(value, {"is": kind.__name__, "state": state})
        raise Unpackable(f"{kind.__module__}.{kind.__qualname__}", where)

    def _noted(self, value: Any, node: Any) -> Any:
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return node

    def _type_name(self, kind: type, where: str) -> str:
        if PLAIN_TYPES.get(kind.__name__) is not kind and not is_known(kind):
            raise Unpackable(f"the type {kind.__module__}.{kind.__qualname__}", where)
        return kind.__name__

    def _values(self, keys: list[Any], values: list[Any], where: str, depth: int) -> Any:
        if len(values) >= _LONG:
            return self._list(values, where, depth)
        return [
            self.node(value, str(key) if isinstance(key, str) else where, depth + 1)
            for key, value in zip(keys, values, strict=True)
        ]

    def _list(self, items: list[Any], where: str, depth: int) -> Any:
        if len(items) >= _LONG:
            kinds = {type(item) for item in items}
            if kinds == {str}:
                text = json.dumps(items, separators=(",", ":")).encode()
                return {"texts": [self._put(text), len(text)]}
            if kinds == {float} or (kinds == {int} and all(-(2**63) <= item < 2**63 for item in items)):
                return {"numbers": self._array(np.array(items), where, depth)}
        return [self.node(item, where, depth + 1) for item in items]

    def _array(self, array: Any, where: str, depth: int) -> Any:
        shape = [int(size) for size in array.shape]
        if array.dtype == object:
            return {"objects": [shape, self._list(array.ravel().tolist(), where, depth + 1)]}
        if array.dtype.kind not in _KINDS or array.dtype.hasobject:
            raise Unpackable(f"an array of {array.dtype}", where)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return {"array": [little.dtype.str, shape, self._put(np.ascontiguousarray(little).tobytes())]}

    def _put(self, content: bytes) -> int:
        self.data.append(content)
        self._length += len(content)
        return self._length - len(content)


class _Unpacker:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._made: list[Any] = []
        self._limit = len(data) + 1_000_000  # sizes of arrays that hold nothing

    def value(self, node: Any, depth: int) -> Any:
        if depth > 3 * _DEPTH:
            raise Unfit("nesting without end")
        if node is None or isinstance(node, bool | int | float):
            return node
        if isinstance(node, str):
            return _sound(node)
        if isinstance(node, list):
            return [self.value(item, depth + 1) for item in node]
        if "is" in node:
            return self._object(node, depth)
        if len(node) != 1:
            raise Unfit("a node of no kind")
        (name, content), *_ = node.items()
        read = getattr(self, f"_read_{name}", None) if name in _READERS else None
        if read is None:
            raise Unfit(f"a node of the kind {str(name)[:40]!r}")
        return read(content, depth + 1)

    def _object(self, node: dict[str, Any], depth: int) -> Any:
        kind = find_type(node["is"])
        if kind is None:
            raise Unfit(f"{str(node['is'])[:80]}, which no model of crcen needs")
        if set(node) != {"is", "state"} or not isinstance(node["state"], dict):
            raise Unfit(f"{node['is']} without a state")
        state = {name: self.value(one, depth + 1) for name, one in node["state"].items()}
        check_state(kind, state)
        return self._noted(made(kind, state))

    def _noted(self, value: Any) -> Any:
        self._made.append(value)
        return value

    def _read_float(self, content: Any, depth: int) -> float:
        return _FLOATS[content]

    def _items(self, node: Any, depth: int) -> list[Any]:
        found = self.value(node, depth)
        if not isinstance(found, list):
            raise Unfit("a list that is none")
        return found

    def _read_tuple(self, content: Any, depth: int) -> Any:
        return tuple(self._items(content, depth))

    def _read_set(self, content: Any, depth: int) -> Any:
        return set(self._items(content, depth))

    def _read_dict(self, content: Any, depth: int) -> Any:
        keys, values = (self._items(part, depth) for part in content)
        found = dict(zip(keys, values, strict=True))
        if len(found) != len(keys):
            raise Unfit("a dict with a key twice")
        return found

    def _read_array(self, content: Any, depth: int) -> Any:
        return self._noted(self._numbers(*content))

    def _numbers(self, dtype: Any, shape: Any, offset: Any) -> Any:
        kind = self._dtype(dtype)
        count = self._count(shape)
        end = _whole(offset) + count * kind.itemsize
        if end > len(self._data):
            raise Unfit("an array that is longer than the file")
        raw = self._data[offset:end]
        if kind.kind == "b" and raw.strip(b"\x00\x01"):
            raise Unfit("truth values that are neither")
        if kind.kind == "U":
            points = np.frombuffer(raw, dtype="<u4")
            if ((points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000))).any():
                raise Unfit("letters that are none")
        return np.frombuffer(raw, dtype=kind, count=count).reshape(shape).copy()

    def _dtype(self, name: Any) -> Any:
        kind = np.dtype(name) if isinstance(name, str) and len(name) < 16 else None
        if kind is None or kind.kind not in _KINDS or kind.str != name or kind.itemsize == 0:
            raise Unfit(f"an array of {str(name)[:40]}")
        return kind

    def _count(self, shape: Any) -> int:
        if not isinstance(shape, list) or len(shape) > _DIMENSIONS:
            raise Unfit("an array of no shape")
        if any(_whole(size) > self._limit for size in shape):
            raise Unfit("an array that is longer than the file")
        return math.prod(shape)

    def _read_scalar(self, content: Any, depth: int) -> Any:
        dtype, offset = content
        return self._numbers(dtype, [], offset)[()]

    def _read_numbers(self, content: Any, depth: int) -> Any:
        return self._plain_array(content, depth).tolist()

    def _read_texts(self, content: Any, depth: int) -> Any:
        offset, length = map(_whole, content)
        if offset + length > len(self._data):
            raise Unfit("texts that are longer than the file")
        found = json.loads(self._data[offset : offset + length])
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise Unfit("texts that are none")
        for one in found:
            _sound(one)
        return found

    def _read_objects(self, content: Any, depth: int) -> Any:
        return self._noted(self._object_array(content, depth))

    def _object_array(self, content: Any, depth: int) -> Any:
        shape, items = content
        found = self._items(items, depth)
        if self._count(shape) != len(found):
            raise Unfit("an array of another size than its items")
        array = np.empty(len(found), dtype=object)
        for i, one in enumerate(found):
            array[i] = one
        return array.reshape(shape)

    def _read_masked(self, content: Any, depth: int) -> Any:
        values, mask = content
        found = self._plain_array(values, depth), self._plain_array(mask, depth)
        if found[0].shape != found[1].shape or found[1].dtype != bool:
            raise Unfit("a mask of another shape than its values")
        return self._noted(np.ma.MaskedArray(found[0], mask=found[1]))

    def _plain_array(self, node: Any, depth: int) -> Any:
        """An array that is part of another node, and not counted itself."""
        if isinstance(node, dict) and set(node) == {"array"}:
            return self._numbers(*node["array"])
        if isinstance(node, dict) and set(node) == {"objects"}:
            return self._object_array(node["objects"], depth)
        raise Unfit("an array that is none")

    def _read_random_state(self, content: Any, depth: int) -> Any:
        name, keys, position, has_gauss, gauss = content
        found = np.random.RandomState()
        found.set_state((name, self._plain_array(keys, depth), int(position), int(has_gauss), float(gauss)))
        return found

    def _read_slice(self, content: Any, depth: int) -> Any:
        if any(one is not None and type(one) is not int for one in content):
            raise Unfit("a slice that is none")
        start, stop, step = content
        return slice(start, stop, step)

    def _read_dtype(self, content: Any, depth: int) -> Any:
        return np.dtype(object) if content == "|O" else self._dtype(content)

    def _read_type(self, content: Any, depth: int) -> Any:
        found = PLAIN_TYPES.get(content) if isinstance(content, str) else None
        found = find_type(content) if found is None else found
        if found is None:
            raise Unfit(f"the type {str(content)[:80]}, which no model of crcen needs")
        return found

    def _read_again(self, content: Any, depth: int) -> Any:
        if _whole(content) >= len(self._made):
            raise Unfit("a reference to nothing")
        return self._made[content]


_READERS = tuple(name.removeprefix("_read_") for name in vars(_Unpacker) if name.startswith("_read_"))


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unfit(f"the size {str(value)[:40]}")
    return value


def _sound(text: str) -> str:
    """Refuse halves of letters, which no file, terminal or JSON takes."""
    if not text.isascii():
        text.encode("utf-8")
    return text
