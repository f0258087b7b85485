"""Progress of a long run, with the time left, on a terminal; elsewhere one line a finished piece of work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["steps"]


@contextmanager
def steps(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a label after each of ``total`` pieces of work."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:  # a bare machine that runs `python -m crcen.experiments.benchmark`
        yield _lines(title, total)
        return

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total)

        def advance(label: str) -> None:
            bar.update(task, advance=1, description=f"{title}: {label}")

        yield advance


def _lines(title: str, total: int) -> Callable[[str], None]:
    """A function that writes one line a call."""
    start, done = time.monotonic(), 0

    def line(label: str) -> None:
        nonlocal done
        done += 1
        passed = time.monotonic() - start
        left = passed / done * (total - done)
        sys.stderr.write(f"{title}: {done}/{total} {label} ({passed:.0f} s, about {left:.0f} s left)\n")

    return line
