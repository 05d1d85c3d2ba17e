"""Makes training_steps.json.

source: PyTorch 2.15.0 (pip install torch==2.15.0 numpy), on the CPU in double precision.
Run it as `python generate.py` in this folder; it takes some seconds.

The models are written here from the equations in crates/lm/src/model/reference.rs; gradients are autograd's. Where a
layer is one that PyTorch has (an LSTM, with or without recurrent projection), the same batches also run through
torch.nn.LSTM and must give the same losses, gradients and states.

Each case reads three batches one after the other with carried state; after each the parameters take a step of plain
SGD along the gradient of the mean loss over the targets that count, and where the model has unit norm, every row of its
embeddings is divided by its norm. Then every row of the batch reads one more token.

- Parameters lie in one vector, in the order of crates/lm/src/model/parameters.rs. Their first values are numbers of a
  linear congruential generator, see `values`.
- `inputs`, `targets` are [step][row]; the target -1 does not count.
- `masks` are [place][step][row][unit]: what enters each layer, then what leaves the last.
- `picked` are the entries [index, value] at the start, in the middle and at the end of every parameter;
  `weighted_sum` is the sum of (1 + index mod 7) * value, which an exchange of two entries would change.
- `cells`, `shown` are [layer][row][unit] after the third batch, `next_probabilities` [row][entry] after one more token.
"""

import json

import torch

ROWS, STEPS, BATCHES, RATE = 2, 4, 3, 0.5
GATES = {
    "lstm": ["input_gate", "forget_gate", "candidate", "output_gate"],
    "cifg": ["input_gate", "candidate", "output_gate"],
    "gru": ["update_gate", "reset_gate", "candidate"],
}
PLAIN = {
    "token": "word", "vocabulary": 11, "embedding": 5, "layers": 1, "hidden": 6, "tied": False, "output_bias": False,
}  # fmt: skip
# name: the model, whether units are dropped, whether some targets do not count, the user's context
CASES = {
    "lstm": ({"cell": "lstm", "output_bias": True}, False, False, []),
    "lstm-two-layers": ({"cell": "lstm", "layers": 2, "output_bias": True}, True, True, []),
    "lstm-dense-tied": ({"cell": "lstm", "dense": 5, "tied": True}, False, True, []),
    "lstm-dense-bias": ({"cell": "lstm", "dense": 4, "output_bias": True}, True, False, []),
    "lstm-projection": (
        {"cell": "lstm", "layers": 2, "recurrent_projection": 3, "user_context": 2}, True, True, [0.25, -0.75]),
    "cifg": ({"cell": "cifg", "layers": 2, "output_bias": True}, True, True, []),
    "cifg-projection": ({"cell": "cifg", "recurrent_projection": 5}, False, False, []),
    "cifg-projection-tied": (
        {"cell": "cifg", "recurrent_projection": 5, "tied": True, "user_context": 3}, True, True, [0.5, -0.125, 1.0]),
    "lstm-dense-tied-unit-norm": ({"cell": "lstm", "dense": 5, "tied": True, "unit_norm": True}, False, False, []),
    "cifg-projection-unit-norm": (
        {"cell": "cifg", "layers": 2, "recurrent_projection": 4, "unit_norm": True, "output_bias": True}, True, True, []),
    "gru": ({"cell": "gru", "layers": 2, "output_bias": True}, True, True, []),
    "gru-dense-tied": ({"cell": "gru", "dense": 5, "tied": True, "user_context": 1}, False, True, [-0.5]),
}  # fmt: skip


def generator(seed):
    """x <- 6364136223846793005 x + 1442695040888963407 mod 2^64; gives the upper 31 bits of each x."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


def values(count, seed):
    """The generator's numbers in [-0.5, 0.5)."""
    numbers = generator(seed)
    return torch.tensor([next(numbers) / 2**31 - 0.5 for _ in range(count)], dtype=torch.float64)


def shapes(model):
    """Every parameter's name and shape, in order."""
    entries, embedding, hidden = model["vocabulary"], model["embedding"], model["hidden"]
    shown = model.get("recurrent_projection", hidden)
    yield "embedding", (entries, embedding)
    for layer in range(model["layers"]):
        below = embedding + model.get("user_context", 0) if layer == 0 else shown
        for gate in GATES[model["cell"]]:
            yield f"layers.{layer}.{gate}.kernel", (below + shown, hidden)
            yield f"layers.{layer}.{gate}.bias", (hidden,)
        if "recurrent_projection" in model:
            yield f"layers.{layer}.projection", (hidden, shown)
    if "dense" in model:
        yield "dense.kernel", (shown, model["dense"])
        yield "dense.bias", (model["dense"],)
    if not model["tied"]:
        yield "output.embedding", (entries, model.get("dense", shown))
    if model["output_bias"]:
        yield "output.bias", (entries,)


def views(model, flat):
    """The named parts of the flat vector."""
    parts, start = {}, 0
    for name, shape in shapes(model):
        end = start + torch.Size(shape).numel()
        parts[name] = flat[start:end].view(shape)
        start = end
    assert start == len(flat)
    return parts


def cell_step(cell, layer, parts, x, cell_before, before):
    """One step of one layer: its cells and what it shows."""

    def gate(name, h):
        total = torch.cat([x, h], 1) @ parts[f"layers.{layer}.{name}.kernel"] + parts[f"layers.{layer}.{name}.bias"]
        return torch.tanh(total) if name == "candidate" else torch.sigmoid(total)

    if cell == "gru":
        update, reset = gate("update_gate", before), gate("reset_gate", before)
        return cell_before, (1 - update) * before + update * gate("candidate", reset * before)
    admit, show = gate("input_gate", before), gate("output_gate", before)
    keep = gate("forget_gate", before) if cell == "lstm" else 1 - admit
    cells = keep * cell_before + admit * gate("candidate", before)
    units = show * torch.tanh(cells)
    projection = parts.get(f"layers.{layer}.projection")
    return cells, units if projection is None else units @ projection


def own_layer(model, layer, parts, x, cells, shown):
    """All steps of a layer, by the equations."""
    out = []
    for x_now in x:
        cells, shown = cell_step(model["cell"], layer, parts, x_now, cells, shown)
        out.append(shown)
    return torch.stack(out), cells, shown


def library_layer(model, layer, parts, x, cells, shown):
    """All steps of a layer, by torch.nn.LSTM."""
    kernels = [parts[f"layers.{layer}.{gate}.kernel"] for gate in GATES["lstm"]]
    biases = torch.cat([parts[f"layers.{layer}.{gate}.bias"] for gate in GATES["lstm"]])
    below = x.shape[-1]
    weights = {
        "weight_ih_l0": torch.cat([k[:below].T for k in kernels]),
        "weight_hh_l0": torch.cat([k[below:].T for k in kernels]),
        "bias_ih_l0": biases,
        "bias_hh_l0": torch.zeros_like(biases),
    }
    if "recurrent_projection" in model:
        weights["weight_hr_l0"] = parts[f"layers.{layer}.projection"].T
    lstm = torch.nn.LSTM(below, model["hidden"], proj_size=model.get("recurrent_projection", 0), dtype=torch.float64)
    out, (shown, cells) = torch.func.functional_call(lstm, weights, (x, (shown[None], cells[None])))
    return out, cells[0], shown[0]


def forward(model, parts, run_layer, batch, state, context):
    """The logits [step][row][entry], and the state after the batch."""
    inputs = torch.tensor(batch["inputs"])
    x = parts["embedding"][inputs]
    x = torch.cat([x, torch.tensor(context, dtype=torch.float64).expand(*inputs.shape, -1)], 2)
    masks = [torch.tensor(m, dtype=torch.float64) for m in batch.get("masks", [])] or [1.0] * (model["layers"] + 1)
    after = []
    for layer in range(model["layers"]):
        x, cells, shown = run_layer(model, layer, parts, x * masks[layer], *state[layer])
        after.append((cells.detach(), shown.detach()))
    x = x * masks[-1]
    if "dense" in model:
        x = x @ parts["dense.kernel"] + parts["dense.bias"]
    logits = x @ parts["embedding" if model["tied"] else "output.embedding"].T
    return (logits + parts["output.bias"] if model["output_bias"] else logits), after


def loss_and_gradient(model, flat, run_layer, batch, state, context):
    """The summed loss, the gradient of the mean loss, and the state after the batch."""
    flat = flat.clone().requires_grad_()
    logits, after = forward(model, views(model, flat), run_layer, batch, state, context)
    targets = torch.tensor(batch["targets"]).flatten()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-1, reduction="sum")
    (loss / (targets >= 0).sum()).backward()
    return loss.item(), flat.grad, after


def renormalised(model, flat):
    """With every embedding of norm 1, where the model says so."""
    if not model.get("unit_norm"):
        return flat
    flat = flat.clone()
    for name, table in views(model, flat).items():
        if name in ("embedding", "output.embedding"):
            table /= table.norm(dim=1, keepdim=True)
    return flat


def batch_of(model, numbers, dropped, unscored):
    """Inputs, targets and masks."""

    def grid(make):
        return [[make() for _ in range(ROWS)] for _ in range(STEPS)]

    def token():
        return next(numbers) % model["vocabulary"]

    batch = {"inputs": grid(token), "targets": grid(lambda: -1 if unscored and next(numbers) % 3 == 0 else token())}
    if dropped:
        shown = model.get("recurrent_projection", model["hidden"])
        sizes = [model["embedding"] + model.get("user_context", 0)] + [shown] * model["layers"]

        def factor():
            return 0.0 if next(numbers) < RATE * 2**31 else 1 / (1 - RATE)

        batch["masks"] = [grid(lambda size=size: [factor() for _ in range(size)]) for size in sizes]
    return batch


def described(model, vector):
    """What is kept of a vector as long as the parameters."""
    picked, start = [], 0
    for _, shape in shapes(model):
        length = torch.Size(shape).numel()
        picked += [[i, vector[i].item()] for i in (start, start + length // 2, start + length - 1)]
        start += length
    weights = 1 + torch.arange(len(vector)) % 7
    return {"norm": vector.norm().item(), "weighted_sum": (weights * vector).sum().item(), "picked": picked}


def case(name, seed):
    changes, dropped, unscored, context = CASES[name]
    model = PLAIN | changes
    if dropped:
        model["dropout"] = {"rate": RATE, "kind": "per_step"}
    numbers, rate = generator(1000 + seed), 0.5
    count = sum(torch.Size(shape).numel() for _, shape in shapes(model))
    flat = values(count, seed)
    shown = model.get("recurrent_projection", model["hidden"])
    zeros = [torch.zeros(ROWS, size, dtype=torch.float64) for size in (model["hidden"], shown)]
    state, batches = [tuple(zeros)] * model["layers"], []
    for _ in range(BATCHES):
        batch = batch_of(model, numbers, dropped, unscored)
        loss, gradient, after = loss_and_gradient(model, flat, own_layer, batch, state, context)
        if model["cell"] == "lstm":
            theirs = loss_and_gradient(model, flat, library_layer, batch, state, context)
            torch.testing.assert_close(theirs, (loss, gradient, after), rtol=1e-12, atol=1e-14)
        batches.append(batch | {"loss": loss, "gradient": described(model, gradient)})
        flat, state = renormalised(model, flat - rate * gradient), after
    more = {"inputs": [[next(numbers) % model["vocabulary"] for _ in range(ROWS)]]}
    logits, _ = forward(model, views(model, flat), own_layer, more, state, context)
    return {
        "name": name, "model": model, "seed": seed, "parameters": count, "learning_rate": rate, "context": context,
        "rows": ROWS, "batches": batches, "trained": described(model, flat),
        "cells": [cells.tolist() for cells, _ in state], "shown": [shown.tolist() for _, shown in state],
        "next_inputs": more["inputs"][0], "next_probabilities": torch.softmax(logits[0], 1).tolist(),
    }  # fmt: skip


def main():
    torch.set_num_threads(1)
    version = torch.__version__.split("+")[0]
    source = f"PyTorch {version} in double precision on the CPU, by generate.py, which explains the fields"
    cases = ",\n".join(
        "  {\n" + ",\n".join(f"   {json.dumps(k)}: {laid_out(v, k)}" for k, v in case(name, seed).items()) + "}"
        for seed, name in enumerate(CASES, 1)
    )
    with open("training_steps.json", "w") as out:
        out.write(f'{{\n "source": {json.dumps(source)},\n "cases": [\n{cases}\n ]\n}}\n')


def laid_out(value, key):
    """JSON with a line for each batch."""
    if key != "batches":
        return json.dumps(value)
    return "[\n    " + ",\n    ".join(json.dumps(batch) for batch in value) + "]"


if __name__ == "__main__":
    main()
