"""The Triton kernel of `crcen.training.fused`; only that module imports it, where there is a GPU.

One program trains one network for one epoch. Its parameters and their moments stay in registers, and so do the hidden
units of some rows. What is read at each step are encoded rows, the same for all networks of a group.

Shape letters: NP rows of a batch, FP inputs (the ones of the bias among them) and HP hidden units, each filled up with
zeros, which neither the loss nor the gradient sees: FP and HP to a power of two, NP to whole pieces of ROWS.
"""

import triton
import triton.language as tl

__all__ = ["train_epoch"]


@triton.jit
def _step(value, grad, first_moment, second_moment, length, epsilon, BETA1: tl.constexpr, BETA2: tl.constexpr):
    """The value and its moments after a step of Adam."""
    first_moment += (1 - BETA1) * (grad - first_moment)
    second_moment = BETA2 * second_moment + (1 - BETA2) * grad * grad
    return value - length * (first_moment / (tl.sqrt(second_moment) + epsilon)), first_moment, second_moment


# Numbers of networks and columns are no reason to compile again.
@triton.jit(
    do_not_specialize=[
        *("n_batches", "n_rows", "n_models", "n_inputs", "n_hidden", "group_labels"),
        *("first_at", "first_group", "first_row", "out_at", "out_group", "bias_at", "bias_group"),
        *("model_at", "model_group"),
    ]
)
def train_epoch(
    flat,  # parameters and Adam's two moments, laid out as `Stack` does
    first_moment,
    second_moment,
    x,  # (G, batches, NP, FP) encoded rows, a one for the bias, zeros
    y,  # (G or 1, batches, NP) labels
    base,  # (G, batches, NP) row weights, zero for rows that fill up
    factors,  # (batches, 2) Adam's step length and ε
    pos_weight,  # (G, M) weights of the classes, the penalty, and the epoch's loss, which is written
    neg_weight,
    l2,
    loss,
    n_batches,
    n_rows,  # NP, a multiple of ROWS
    n_models,  # K networks of this block
    n_inputs,  # F
    n_hidden,  # H
    group_labels,  # from a group's labels to the next: zero where all have the same
    first_at,  # where the block's first layer, output weights and output biases start in a flat vector, and their steps
    first_group,
    first_row,
    out_at,
    out_group,
    bias_at,
    bias_group,
    model_at,  # the same of a value per network
    model_group,
    FP: tl.constexpr,
    HP: tl.constexpr,
    ROWS: tl.constexpr,  # rows at a time
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    TELLS_LOSS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """An epoch of a block's networks, one a program."""
    program = tl.program_id(0).to(tl.int64)
    group, network = program // n_models, program % n_models
    inputs, hidden, rows = tl.arange(0, FP), tl.arange(0, HP), tl.arange(0, ROWS)

    first_at += group * first_group + network * n_hidden
    at = inputs[:, None] * first_row + hidden[None, :]
    is_own = (inputs < n_inputs)[:, None] & (hidden < n_hidden)[None, :]
    weight = tl.load(flat + first_at + at, is_own, 0.0)
    out_at += group * out_group + network * n_hidden
    is_unit = hidden < n_hidden
    out = tl.load(flat + out_at + hidden, is_unit, 0.0)
    bias_at += group * bias_group + network
    bias = tl.load(flat + bias_at)

    weight_1 = tl.load(first_moment + first_at + at, is_own, 0.0)  # and both moments of each
    weight_2 = tl.load(second_moment + first_at + at, is_own, 0.0)
    out_1 = tl.load(first_moment + out_at + hidden, is_unit, 0.0)
    out_2 = tl.load(second_moment + out_at + hidden, is_unit, 0.0)
    bias_1, bias_2 = tl.load(first_moment + bias_at), tl.load(second_moment + bias_at)

    model_at += group * model_group + network
    neg = tl.load(neg_weight + model_at)
    between = tl.load(pos_weight + model_at) - neg
    penalty = tl.load(l2 + model_at)
    decay = tl.where(inputs < n_inputs - 1, penalty, 0.0)[:, None]

    total = tl.zeros([ROWS], tl.float32)
    for batch in range(n_batches):
        weight_grad = tl.zeros([FP, HP], tl.float32)
        out_parts = tl.zeros([ROWS, HP], tl.float32)  # added up over rows once a batch
        bias_grad = tl.zeros([ROWS], tl.float32)
        for start in range(0, n_rows, ROWS):
            own_base = (group * n_batches + batch) * n_rows + start
            own_label = group * group_labels + batch * n_rows + start
            batch_x = tl.load(x + own_base * FP + rows[:, None] * FP + inputs[None, :])
            label = tl.load(y + own_label + rows)
            row_weight = tl.load(base + own_base + rows) * (neg + label * between)
            units = tl.maximum(
                tl.dot(batch_x, weight, input_precision=PRECISION), 0.0, propagate_nan=tl.PropagateNan.ALL
            )
            logit = tl.sum(units * out[None, :], 1) + bias
            if TELLS_LOSS:
                signed = (1.0 - 2.0 * label) * logit
                total += row_weight * (tl.maximum(signed, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(signed))))
            error = row_weight * (tl.sigmoid(logit) - label)
            bias_grad += error
            out_parts += units * error[:, None]
            back = tl.where(units > 0.0, error[:, None] * out[None, :], 0.0)
            weight_grad = tl.dot(tl.trans(batch_x), back, weight_grad, input_precision=PRECISION)
        out_grad = tl.sum(out_parts, 0)
        length, epsilon = tl.load(factors + 2 * batch), tl.load(factors + 2 * batch + 1)
        grad = weight_grad + decay * weight
        weight, weight_1, weight_2 = _step(weight, grad, weight_1, weight_2, length, epsilon, BETA1, BETA2)
        out, out_1, out_2 = _step(out, out_grad + penalty * out, out_1, out_2, length, epsilon, BETA1, BETA2)
        bias, bias_1, bias_2 = _step(bias, tl.sum(bias_grad, 0), bias_1, bias_2, length, epsilon, BETA1, BETA2)

    tl.store(first_moment + first_at + at, weight_1, is_own)
    tl.store(second_moment + first_at + at, weight_2, is_own)
    tl.store(first_moment + out_at + hidden, out_1, is_unit)
    tl.store(second_moment + out_at + hidden, out_2, is_unit)
    tl.store(first_moment + bias_at, bias_1)
    tl.store(second_moment + bias_at, bias_2)
    tl.store(flat + first_at + at, weight, is_own)
    tl.store(flat + out_at + hidden, out, is_unit)
    tl.store(flat + bias_at, bias)
    if TELLS_LOSS:
        squares = tl.sum(tl.sum(decay * weight * weight, 1), 0) + penalty * tl.sum(out * out, 0)
        tl.store(loss + model_at, tl.sum(total, 0) / n_batches + 0.5 * squares)
