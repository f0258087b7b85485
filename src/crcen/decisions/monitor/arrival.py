"""Whether the order in which labels arrive depends on what they are."""

from dataclasses import dataclass, field
from typing import Any

from crcen.decisions.monitor.plain_state import count_of, number_of, plain_sums, sums_from
from crcen.theory.limits import ARRIVAL_TURNS, ARRIVAL_Z
from crcen.theory.residual_test import ResidualSums

__all__ = ["ArrivalOrder"]

# Batches are pooled until they should hold this many positives: with fewer, no positive at all is not yet odd. A piece
# with far too many ends as soon as it holds a few.
_ENOUGH, _FEW = 10.0, 5

_WORDS = (
    "{kinds} seem to arrive at different times: {turns} times a piece of the stream with far more "
    "{one} than the model expects stood beside one with far fewer; evidence is only valid where a label's arrival "
    "does not depend on what it is, so feed cohorts that are complete (delay= holds rows back until theirs is)"
)


@dataclass
class ArrivalOrder:
    """Counts how often the residual of neighbouring pieces turns from far above to far below what chance allows.

    Parameters
    ----------
    one, kinds : str
        What the sums' positives are called, alone and beside the others.
    """

    one: str = "positives"
    kinds: str = "positives and negatives"
    pending: ResidualSums = field(default_factory=ResidualSums)
    last_z: float = 0.0
    turns: int = 0

    def add(self, sums: ResidualSums) -> str:
        """Take a batch; words to warn with when it is the one that shows it, else nothing."""
        self.pending = self.pending + sums
        if self.pending.variance <= 0.0:
            return ""
        z = self.pending.z
        is_crowded = z > ARRIVAL_Z and self.pending.n_pos >= _FEW
        if not is_crowded and self.pending.slope**2 < _ENOUGH * self.pending.variance:
            return ""
        self.pending = ResidualSums()
        turned = min(abs(z), abs(self.last_z)) > ARRIVAL_Z and (z > 0.0) != (self.last_z > 0.0)
        self.last_z = z
        self.turns += turned
        return (
            _WORDS.format(turns=self.turns, one=self.one, kinds=self.kinds)
            if turned and self.turns == ARRIVAL_TURNS
            else ""
        )

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {"pending": plain_sums(self.pending), "last_z": self.last_z, "turns": self.turns}

    def restore(self, state: Any) -> None:
        """Take what `state` gave, checked."""
        self.pending = sums_from(state, "pending")
        self.last_z, self.turns = number_of(state, "last_z"), count_of(state, "turns")
