"""What ``"auto"`` and ``None`` stand for in the parameters of `CRCENClassifier`."""

from typing import Any

from crcen.training.schedule import n_batches

__all__ = ["encoding_of", "epochs_of", "scales_of", "solver_of"]

_DEFAULT_EPOCHS = {"adam": 30, "lbfgs": 500}
# Adam needs steps rather than passes: many rows get fewer of the default passes, down to five.
_ENOUGH_STEPS, _FEWEST_EPOCHS = 4000, 5


def solver_of(solver: str, hidden: tuple[int, ...]) -> str:
    """``"adam"`` or ``"lbfgs"``: a convex objective has one optimum, and L-BFGS finds it."""
    if solver != "auto":
        return solver
    return "adam" if hidden else "lbfgs"


def epochs_of(max_epochs: int | None, solver: str, n_rows: int, batch_size: int) -> int:
    """Length of the schedule."""
    epochs = _DEFAULT_EPOCHS[solver]
    if solver == "adam":
        enough = _ENOUGH_STEPS // n_batches(n_rows, int(batch_size))
        epochs = min(epochs, max(enough, _FEWEST_EPOCHS))
    return int(max_epochs or epochs)


def encoding_of(encoding: str, hidden: tuple[int, ...]) -> str:
    """Name of the input encoding."""
    if encoding != "auto":
        return encoding
    return "steps" if hidden else "standard"


def scales_of(column_scales: Any, encoding: str, solver: str, *, standardize: bool) -> bool:
    """Whether encoded columns have learnable scales: steps are many columns, most of them of little use."""
    if column_scales != "auto":
        return bool(column_scales)
    return standardize and encoding == "steps" and solver == "adam"
