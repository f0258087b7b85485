"""Search: how a search goes about its settings."""

from dataclasses import dataclass

from crcen.training.engines import ENGINES
from crcen.training.parameters import Checked, choice, flag, number

__all__ = ["Search"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Search(Checked):
    """How a search goes about its settings: ``CRCENClassifierCV(search=Search(halving=False))``.

    Parameters
    ----------
    one_standard_error : bool, default=False
        Take the simplest setting (fewest hidden units, then largest l2) within one standard error of the best.
    halving : bool, default=True
        Where a weighting has eight settings or more (four, if folds train on 10,000 rows or more), look at four points
        of the schedule which of them are far behind, and end them there; and end those that gain no more. On the
        benchmark the winner is the same within noise. From 10,000 rows on, eight settings or more first race on 5,000
        rows, or an eighth of them (more where a class is rare), for ten epochs; the best quarter begins anew on all
        rows, and the others stay as that left them. Not with ``one_standard_error``, which wants all settings, nor
        where ``memory_bytes`` has no room for it.
    widen : {"auto", True, False}, default="auto"
        Where the best setting is on a border of the grid, try the next ``l2`` beyond it and a schedule of twice the
        length, up to three steps, as long as each gains half a percent. ``"auto"`` does so for what was left at its
        default: an ``l2`` or ``max_epochs`` that was given stays as it is. On few rows the schedule has its full length
        from the start. ``search_notes_`` says what is still on a border. Not with ``one_standard_error``.
    engine : {"local", "ray"}, default="local"
        Where the stacks are trained: in this process, or as tasks of a Ray cluster. The result is the same.
    memory_bytes : int, default=None
        Bound on the memory of the search beside the rows themselves; a stack that would exceed it is split, and what
        cannot be split is refused. ``None`` is half of what is free.
    """

    one_standard_error: bool = False
    halving: bool = True
    widen: bool | str = "auto"
    engine: str = "local"
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        bound = self.memory_bytes
        self._set(
            one_standard_error=flag("one_standard_error", self.one_standard_error),
            halving=flag("halving", self.halving),
            widen=choice("widen", self.widen, ("auto", True, False)),
            engine=choice("engine", self.engine, tuple(ENGINES)),
            memory_bytes=None if bound is None else number("memory_bytes", bound, low=1, integer=True),
        )

    @property
    def drops_settings(self) -> bool:
        """Whether settings may end early."""
        return self.halving and not self.one_standard_error
