"""The solvers by name, and what is known of each before one is made; apart from torch, as recipes are.

Jobs, plans and estimates of memory ask these facts and never compare names. What a solver does is in a module of its
own beside this one.
"""

from dataclasses import dataclass

__all__ = ["ADAM", "LBFGS", "SOLVERS", "SolverKind"]


@dataclass(frozen=True)
class SolverKind:
    """What the engine must know of a solver to plan for it.

    Parameters
    ----------
    name
        As people write it.
    draws_batches
        Whether a step is an epoch of mini-batches, by a rate and in a seeded order, that can stop and go on. Else it is
        an iteration over all rows, which ends at a tolerance.
    default_epochs
        Steps where nobody says how many.
    itemsize
        Bytes of a number: 4 trains in float32, 8 in float64.
    mixes_shapes
        Whether networks with different hidden layers can share a stack.
    copies
        Vectors of all parameters that training holds at a time.
    cut_operations
        Operations a step from which on half of a stack is worth a thread. The time goes into calls: from the
        interpreter, where threads queue, or from compiled code.
    """

    name: str
    draws_batches: bool
    default_epochs: int
    itemsize: int
    mixes_shapes: bool
    copies: int
    cut_operations: float


# Parameters, gradient, two moments, penalties and scratch, and networks handed out in float64, which counts twice.
ADAM = SolverKind("adam", True, 30, 4, True, copies=10, cut_operations=2e6)
# The same, and history pairs, points and directions besides; its calls come from the interpreter.
LBFGS = SolverKind("lbfgs", False, 500, 8, False, copies=36, cut_operations=1e7)

SOLVERS = {kind.name: kind for kind in (ADAM, LBFGS)}
