"""Trains a model folder's model further in PyTorch, as `keyhush pretrain` does; one line of JSON for every epoch.

The parameters are those of the folder (`keyhush pretrain --epochs 0` writes one). Text, batches, carried state, learning
rates, the units that dropout leaves out and measuring are the same. Plain SGD, no clipping, f32, one thread or one GPU.
"""

import argparse
import json
import pathlib
import time

import numpy
import torch
from masks import Masks
from torch.nn import functional

BOS, EOS, UNK = 0, 1, 2
GATES = ("input_gate", "forget_gate", "candidate", "output_gate")  # PyTorch's order too


def tensors(path):
    """The tensors of a safetensors file: a length, a header in JSON, the values."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: torch.from_numpy(numpy.frombuffer(content[start + at : start + end], "<f4").copy()).view(about["shape"])
        for name, about in header.items()
        for at, end in [about["data_offsets"]]
    }


def stream(path, ids):
    """What is read and what is to be predicted."""
    inputs, targets = [], []
    for line in path.read_text().splitlines():
        words = [ids.get(word, UNK) for word in line.split()]
        if words:
            inputs += [BOS, *words]
            targets += [*words, EOS]
    return torch.tensor(inputs), torch.tensor(targets)


def batches(text, rows, unroll):
    """`rows` parts of the stream side by side, [step][row]."""
    length = len(text[0]) // rows
    inputs, targets = (part[: rows * length].view(rows, length).T.contiguous() for part in text)
    for at in range(0, length, unroll):
        yield inputs[at : at + unroll], targets[at : at + unroll]


class Model(torch.nn.Module):
    """An LSTM of some layers with its own output embedding and bias."""

    def __init__(self, folder):
        super().__init__()
        made_of = json.loads((folder / "config.json").read_text())["model"]["recurrent"]
        assert made_of["cell"] == "lstm" and made_of["output_bias"] and not made_of["tied"], "not zaremba650's kind"
        self.rate = float(numpy.float32((made_of.get("dropout") or {"rate": 0.0})["rate"]))
        self.widths = [made_of["embedding"]] + [made_of["hidden"]] * made_of["layers"]
        values = tensors(folder / "model.safetensors")
        self.embedding = torch.nn.Parameter(values["embedding"])
        self.output = torch.nn.Parameter(values["output.embedding"])
        self.bias = torch.nn.Parameter(values["output.bias"].flatten())
        self.layers = torch.nn.ModuleList(
            self.layer(values, number, made_of["hidden"]) for number in range(made_of["layers"])
        )

    @staticmethod
    def layer(values, number, hidden):
        kernels = [values[f"layers.{number}.{gate}.kernel"] for gate in GATES]
        biases = [values[f"layers.{number}.{gate}.bias"].flatten() for gate in GATES]
        below = len(kernels[0]) - hidden
        layer = torch.nn.LSTM(below, hidden)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(torch.cat([kernel[:below].T for kernel in kernels]))
            layer.weight_hh_l0.copy_(torch.cat([kernel[below:].T for kernel in kernels]))
            layer.bias_ih_l0.copy_(torch.cat(biases))
            layer.bias_hh_l0.zero_()
        layer.bias_hh_l0.requires_grad_(False)  # one bias, not two that learn the same
        return layer

    def forward(self, inputs, targets, states, masks):
        """The mean loss, and the states after."""
        x = functional.embedding(inputs, self.embedding)
        after = []
        for layer, state, mask in zip(self.layers, states, masks):
            x, (shown, cells) = layer(x * mask, state)
            after.append((shown.detach(), cells.detach()))
        logits = functional.linear((x * masks[-1]).flatten(0, 1), self.output, self.bias)
        return functional.cross_entropy(logits, targets.flatten()), after


def walk(model, text, options, masks, each):
    """The perplexity over a text; `each` gets the loss of every batch."""
    whole = [1.0] * len(model.widths)
    total, count, states = torch.zeros((), dtype=torch.float64, device=options.device), 0, [None] * len(model.layers)
    for inputs, targets in batches(text, options.batch, options.unroll):
        loss, states = model(inputs, targets, states, masks.draw(*inputs.shape) if masks else whole)
        each(loss)
        total += loss.detach() * targets.numel()
        count += targets.numel()
    return (total / count).exp().item(), count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=pathlib.Path, required=True, help="the model folder to begin with")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--valid", type=pathlib.Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--unroll", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--decay-after", type=int, required=True)
    parser.add_argument("--decay", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True, help="of dropout")
    parser.add_argument("--perturb", type=float, default=0.0, help="change every first parameter by up to this part of it")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    words = (options.start / "vocab.txt").read_text().splitlines()
    ids = {word: number for number, word in enumerate(words)}
    train, valid = ([part.to(options.device) for part in stream(p, ids)] for p in (options.data, options.valid))
    model = Model(options.start)
    with torch.no_grad():
        for values in model.parameters():
            values.mul_(1 + options.perturb * torch.rand(values.shape, generator=torch.Generator().manual_seed(1)))
    model.to(options.device)
    masks = Masks(options.seed, model.rate, model.widths, options.device) if model.rate > 0 else None
    for epoch in range(1, options.epochs + 1):
        rate = options.learning_rate * options.decay ** max(epoch - options.decay_after, 0)
        optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)

        def learn(loss):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

        began = time.perf_counter()
        train_perplexity, tokens = walk(model, train, options, masks, learn)
        seconds = time.perf_counter() - began
        with torch.no_grad():
            valid_perplexity, _ = walk(model, valid, options, None, lambda loss: None)
        answer = {
            "epoch": epoch, "learning_rate": rate, "train_perplexity": train_perplexity,
            "valid_perplexity": valid_perplexity, "tokens": tokens, "tokens_per_s": tokens / seconds,
            "torch": torch.__version__, "device": options.device,
        }  # fmt: skip
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
