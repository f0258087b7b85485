"""What `partial_fit` does alike for two classes and for K: networks started or gone on with, and one pass over rows."""

from typing import TYPE_CHECKING, Any

import numpy as np

from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.models.fitting import member_seed
from crcen.training.encoding import InputEncoding, column_layout, fit_encoding, incomplete_columns
from crcen.training.engines import need_torch
from crcen.training.jobs import Status
from crcen.training.network import NetworkGroup
from crcen.training.recipe import Recipe

if TYPE_CHECKING:  # torch is for fitting alone
    from crcen.training.stream import StreamTrainer

__all__ = ["carried", "continued", "kept_networks", "networks_of", "one_pass", "started_trainer"]


def carried(recipe: Recipe, rows: Any) -> tuple[Recipe, InputEncoding]:
    """The recipe of networks that start here, and their input layer, fitted on the first rows."""
    if recipe.column_scales is True:
        raise InvalidParameter("column_scales=True needs all rows at once: use fit, or column_scales='auto'.")
    kind = "standard" if recipe.encoding == "auto" else recipe.encoding  # the first rows may be few
    layout = column_layout(rows.X, kind, recipe.bins)
    indicators = incomplete_columns(rows.X) if recipe.missing == "indicator" else None
    own = rows.X, rows.target, rows.weights
    encoding = fit_encoding(kind, layout, *own, standardize=recipe.standardize, indicators=indicators)
    recipe = recipe.in_batches().replace(encoding=kind, column_scales=False, balance=False)
    return recipe.settled(len(rows.X)), encoding


def continued(recipe: Recipe, before: Any) -> tuple[Recipe, InputEncoding]:
    """The recipe of networks that are there already: their shape is theirs, and what is learned has no scales."""
    group = networks_of(before)
    hidden = tuple(layer.shape[2] for layer in group.weights[:-1])
    recipe = recipe.in_batches().replace(hidden=hidden, activation=group.activation)
    return recipe.replace(column_scales=False, balance=False).settled(1), group.encoding


def networks_of(ensemble: Any) -> NetworkGroup:
    """The group of networks of a fitted model."""
    (group,) = ensemble.members
    if not isinstance(group, NetworkGroup):
        raise InvalidInput(f"partial_fit goes on with networks: this model holds a {type(group).__name__}.")
    return group


def started_trainer(
    model: Any,
    state: dict[str, Any],
    recipe: Recipe,
    encoding: InputEncoding,
    output_bias: Any,
    fitted: NetworkGroup | None,
) -> "StreamTrainer":
    """The networks where they stand: at their start, as fitted, or as the last call left them."""
    need_torch()
    from crcen.training.engine import find_device
    from crcen.training.stream import StreamShape, StreamTrainer

    n_members = model.n_members if fitted is None else len(fitted)
    shape = StreamShape(
        n_inputs=encoding.size,
        recipe=recipe,
        seeds=tuple(member_seed(state["seed"], member) for member in range(n_members)),
        total_rows=0,
        n_outputs=np.size(output_bias),
    )
    trainer = StreamTrainer(shape, find_device(model.device))
    if "trainer" in state:
        trainer.restore(state["trainer"])
    elif fitted is None:
        trainer.initialise(output_bias)
    else:
        trainer.start_from(list(fitted.weights), list(fitted.biases))
    return trainer


def one_pass(trainer: "StreamTrainer", state: dict[str, Any], encoding: InputEncoding, rows: Any) -> None:
    """Learn from the rows, whose targets are bools or class numbers."""
    import torch

    from crcen.training.stream import Batch, cut_evenly, encoded_rows, spread_order
    from crcen.training.threads import reproducible_arithmetic

    scale = state["totals"].sum() / state["n_rows"]
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([state["seed"], 5, trainer.rows_seen])))
    order = spread_order(rows.target, rng)
    batches = Batch(
        torch.from_numpy(encoded_rows(encoding, rows.X)[order]),
        torch.from_numpy(rows.target[order].astype(np.float32)),
        torch.from_numpy((rows.weights[order] / scale).astype(np.float32)),
    ).to(trainer.device)
    with reproducible_arithmetic():
        for _ in trainer.run(batches[part] for part in cut_evenly(len(order), trainer.shape.recipe.batch_rows)):
            pass


def kept_networks(trainer: "StreamTrainer", encoding: InputEncoding, recipe: Recipe) -> NetworkGroup:
    """The networks as they are now."""
    if not trainer.is_finite:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}, or look for extreme values.")
    layers, biases = trainer.parameters()
    return NetworkGroup(encoding, tuple(layers), tuple(biases), recipe.activation)
