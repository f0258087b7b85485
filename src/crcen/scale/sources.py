"""What can be streamed: Parquet files, Arrow datasets, and anything that gives batches again and again."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Protocol, TypeVar

import numpy as np

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.scale.arrow_source import ArrowSource
from crcen.scale.chunks import Chunk

__all__ = ["BatchSource", "RowBlocks", "RowSource", "open_source", "read_ahead"]

T = TypeVar("T")


class RowBlocks(Protocol):
    """Rows that can be read any number of times, in blocks."""

    def blocks(
        self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Iterator[Iterable[Chunk]]:
        """Blocks of about ``block_rows`` rows, in an order from (seed, epoch), from block ``start`` on.

        The chunks of a block may be read only when they are asked for: take them before the next block.
        """


class RowSource(RowBlocks, Protocol):
    """A source of rows that can say what it holds."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""

    @property
    def fingerprint(self) -> str:
        """A text that differs for other data, as far as can be told without reading them."""

    def survey(self, use: Callable[[Iterator[Chunk]], Callable[[], None]]) -> None:
        """Read everything once; ``use`` takes the chunks of a part and returns what to do if all could be read."""


def open_source(
    source: Any,
    target: str | None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    *,
    skip_bad_files: bool = False,
) -> RowSource:
    """Rows from whatever was given."""
    if isinstance(source, ArrowSource):
        return source
    is_paths = isinstance(source, str | Path) or (
        isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str | Path) for one in source)
    )
    if is_paths or _is_dataset(source):
        if target is None:
            raise InvalidParameter(
                "target must name the column of labels of files or of an Arrow dataset: got None.", parameter="target"
            )
        return ArrowSource(source, target, weight, features, skip_bad_files=skip_bad_files)
    if target is not None or weight is not None or features is not None:
        raise InvalidParameter(
            "target, sample_weight and features name columns of files; batches bring (X, y) or (X, y, weight) instead."
        )
    return BatchSource(source)


def _is_dataset(source: Any) -> bool:
    return any(base.__module__.startswith("pyarrow") and base.__name__ == "Dataset" for base in type(source).__mro__)


class BatchSource:
    """Rows of any object that gives (X, y) or (X, y, weight) batches each time it is iterated."""

    def __init__(self, batches: Iterable[Any]) -> None:
        if not hasattr(batches, "__iter__"):
            raise InvalidInput(
                f"a source must be Parquet files, an Arrow dataset or an iterable of (X, y) batches: got a "
                f"{type(batches).__name__}."
            )
        if iter(batches) is batches:
            raise InvalidInput(
                f"a source is read several times, but this {type(batches).__name__} can be read only once: pass a list "
                f"of batches, or an object whose __iter__ starts anew."
            )
        self._batches = batches
        self.has_names = False
        self._names: tuple[str, ...] = ()
        self._n_rows = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, known once a batch was read: those of a data frame, or x0, x1, …."""
        return self._names

    @property
    def fingerprint(self) -> str:
        """Batches say nothing of themselves."""
        return "batches"

    def survey(self, use: Callable[[Iterator[Chunk]], Callable[[], None]]) -> None:
        """Read all batches."""
        use(self._chunks())()

    def blocks(self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0) -> Iterator[list[Chunk]]:
        """Blocks in the order of the batches, whatever the seed; those before ``start`` are read, too."""
        waiting: list[Chunk] = []
        number = 0
        for chunk in self._chunks():
            if waiting and sum(map(len, waiting)) + len(chunk) > block_rows:
                if number >= start:
                    yield waiting
                number, waiting = number + 1, []
            waiting.append(chunk)
        if waiting and number >= start:
            yield waiting

    def _chunks(self) -> Iterator[Chunk]:
        n_rows = 0
        for number, batch in enumerate(self._batches):
            chunk = self._chunk(batch, f"batch {number}")
            n_rows += len(chunk)
            yield chunk
        if self._n_rows and n_rows != self._n_rows:
            raise InvalidInput(f"the source gave {self._n_rows} rows at first and {n_rows} now; it must give the same.")
        self._n_rows = n_rows

    def _chunk(self, batch: Any, origin: str) -> Chunk:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise InvalidInput(f"{origin} must be (X, y) or (X, y, weight): got a {type(batch).__name__}.")
        names = tuple(str(name) for name in getattr(batch[0], "columns", ()))
        try:
            X = np.ascontiguousarray(batch[0], dtype=np.float64)
            labels = np.asarray(batch[1])
            weight = np.ones(len(X)) if len(batch) == 2 else np.asarray(batch[2], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{origin} must hold numbers in X and in its weights: {error}.") from error
        if X.ndim != 2 or labels.shape != (len(X),) or weight.shape != (len(X),):
            raise InvalidInput(
                f"{origin} must have X of shape (n, features) and one label (and weight) a row: got {X.shape}, "
                f"{labels.shape} and {weight.shape}."
            )
        self.has_names = bool(names)
        names = names or tuple(f"x{j}" for j in range(X.shape[1]))
        self._names = self._names or names
        if names != self._names:
            raise InvalidInput(
                f"{origin} has {len(names)} columns ({', '.join(names[:5])}, …), the first had {len(self._names)} "
                f"({', '.join(self._names[:5])}, …); all must be alike."
            )
        return Chunk(X, labels, weight, origin)


def read_ahead(items: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same items, made by a thread that stays at most ``depth`` ahead; its errors are raised here."""
    queue: Queue[tuple[bool, Any]] = Queue(depth)
    stop = threading.Event()

    def put(entry: tuple[bool, Any]) -> bool:
        while not stop.is_set():
            try:
                queue.put(entry, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:  # handed over, whatever it is
            put((False, error))

    thread = threading.Thread(target=work, daemon=True, name="crcen-read-ahead")
    thread.start()
    try:
        while True:
            is_item, value = queue.get()
            if is_item:
                yield value
                del value  # not kept alive while the next one is waited for
            elif value is not None:
                raise value
            else:
                return
    finally:
        stop.set()
        while True:
            try:
                queue.get_nowait()
            except Empty:
                break
        thread.join()
