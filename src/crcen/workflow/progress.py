"""Progress of work that takes more than two seconds, on a terminal only."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["busy", "counted"]

PATIENCE = 2.0


@contextmanager
def busy(title: str, *, visible: bool) -> Iterator[None]:
    """Show that work of unknown length goes on, on a terminal."""
    if not visible:
        yield
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(title):
        yield


@contextmanager
def counted(title: str, total: int | None, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of things just done; a bar appears after two seconds."""
    if not visible:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar: Any = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task, start = bar.add_task(title, total=total), time.monotonic()
    try:

        def advance(done: int) -> None:
            bar.update(task, advance=done)
            if not bar.live.is_started and time.monotonic() - start > PATIENCE:
                bar.start()

        yield advance
    finally:
        bar.stop()
