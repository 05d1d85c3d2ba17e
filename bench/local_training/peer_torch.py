"""Local training in PyTorch on one thread, as a worker of bench.py: python peer_torch.py MODEL WAY USERS.

| way             | recurrence                                             | what torch.compile gets                  |
|-----------------|--------------------------------------------------------|------------------------------------------|
| eager           | PyTorch's LSTM; a loop for CIFG, which PyTorch lacks   | nothing                                  |
| compiled output | the same                                               | dense layer, output and loss             |
| compiled        | the loop for all                                       | everything but the SGD step              |
| compiled step   | the loop for all                                       | everything with gradients and SGD inside |
"""

import sys

import torch
import work
from torch.nn import functional


def loop(model, p, x, state):
    """The recurrence by hand: x is [step][row][unit]; the part that comes from below is one product."""
    cells, before = state
    below = x @ p["from_below"] + p["gate_bias"]
    out = []
    for now in below:
        total = torch.addmm(now, before, p["from_before"])
        if model["cell"] == "lstm":
            admit, keep, candidate, show = total.chunk(4, 1)
            cells = torch.sigmoid(keep) * cells + torch.sigmoid(admit) * torch.tanh(candidate)
        else:
            admit, candidate, show = total.chunk(3, 1)
            admit = torch.sigmoid(admit)
            cells = cells + admit * (torch.tanh(candidate) - cells)
        before = torch.sigmoid(show) * torch.tanh(cells)
        if model["projection"]:
            before = before @ p["projection"]
        out.append(before)
    return torch.stack(out), (cells, before)


def library(p, x, state):
    """torch.nn.LSTM, as the function that it calls; its second bias is 0 and not trained."""
    cells, before = state
    weights = [p["from_below"], p["from_before"], p["gate_bias"], p["no_bias"]]
    out, before, cells = torch.lstm(x, (before[None], cells[None]), weights, True, 1, 0.0, True, False, False)
    return out, (cells[0], before[0])


def output_loss(model, p, x, targets):
    x = x.flatten(0, 1)
    if model["dense"]:
        x = torch.addmm(p["dense_bias"], x, p["dense"])
    table = p["embedding" if model["tied"] else "output"]
    return functional.cross_entropy(functional.linear(x, table, p.get("output_bias")), targets.flatten())


def trainer(model, way):
    """A function of a user's number that trains on the user's tokens."""
    uses_library = model["cell"] == "lstm" and way in ("eager", "compiled output")
    start = {name: torch.from_numpy(value) for name, value in work.first_parameters(model).items()}
    if uses_library:
        # The library wants them as [gate][from].
        start = {n: v.T.contiguous() if n.startswith("from_") else v for n, v in start.items()}
    p = {name: value.clone().requires_grad_() for name, value in start.items()}
    trained, first = list(p.values()), list(start.values())
    if uses_library:
        p["no_bias"] = torch.zeros_like(start["gate_bias"])

    head = torch.compile(output_loss) if way == "compiled output" else output_loss

    def loss_of(p, inputs, targets, state):
        x = functional.embedding(inputs, p["embedding"])
        x, state = library(p, x, state) if uses_library else loop(model, p, x, state)
        return head(model, p, x, targets), state

    def step(inputs, targets, state):
        loss, state = loss_of(p, inputs, targets, state)
        gradients = torch.autograd.grad(loss, trained)
        with torch.no_grad():
            torch._foreach_add_(trained, gradients, alpha=-work.LEARNING_RATE)
        return loss.detach(), tuple(part.detach() for part in state)

    if way == "compiled":
        loss_of = torch.compile(loss_of)
    if way == "compiled step":
        gradient = torch.func.grad_and_value(loss_of, has_aux=True)

        @torch.compile
        def all_in_one(p, inputs, targets, state):
            gradients, (loss, state) = gradient(p, inputs, targets, state)
            for name, value in p.items():
                value.sub_(gradients[name], alpha=work.LEARNING_RATE)
            return loss, state

        def step(inputs, targets, state):
            with torch.no_grad():
                return all_in_one(p, inputs, targets, state)

    data = {}

    def train(user):
        if user not in data:
            data[user] = [torch.from_numpy(part) for part in work.tokens(model, user)]
        with torch.no_grad():
            torch._foreach_copy_(trained, first)
        state = (torch.zeros(model["rows"], model["hidden"]), torch.zeros(model["rows"], work.shown(model)))
        losses = []
        for inputs, targets in zip(*data[user]):
            loss, state = step(inputs, targets, state)
            losses.append(loss)
        with torch.no_grad():
            change = torch._foreach_sub(trained, first)
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(change)))
            torch._foreach_mul_(change, torch.clamp(work.CLIP / norm, max=1.0))
        return losses[0], losses[-1], norm

    return train


def main():
    name, way, users = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    train = trainer(work.MODELS[name], way)
    for user in range(users):
        train(user)
    work.serve(train, users, {"version": torch.__version__})


if __name__ == "__main__":
    main()
