"""Rounds of federated averaging in Flower: a word-pair model with as many parameters as Keyhush's `tiny`, and lines of what happened when."""
import json
import time

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

WORDS, WIDTH = 914, 16  # 914 * 16 * 2 + 16 = 29,264 parameters
BATCH, STEPS, RATE = 80, 3, 0.5  # 200 tokens or so, as a device of `keyhush bench network`


def note(path, **what):
    """A line of JSON; each process writes whole lines only."""
    with open(path, "a", encoding="ascii") as out:
        out.write(json.dumps(what) + "\n")


def first():
    rng = np.random.default_rng(1)
    tables = [rng.normal(0, 0.1, (WORDS, WIDTH)).astype(np.float32) for _ in range(2)]
    return ArrayRecord([*tables, np.zeros(WIDTH, np.float32)])


def trained(arrays, device):
    """Some steps of SGD: the next word from the word before."""
    before, after, shift = (a.copy() for a in arrays)
    rng = np.random.default_rng([device, time.time_ns()])
    for _ in range(STEPS):
        x, y = rng.zipf(1.3, (2, BATCH)) % WORDS
        hidden = before[x] + shift
        scores = hidden @ after.T
        chance = np.exp(scores - scores.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        chance[np.arange(BATCH), y] -= 1
        chance *= RATE / BATCH
        to_hidden = chance @ after
        after -= chance.T @ hidden
        np.subtract.at(before, x, to_hidden)
        shift -= to_hidden.sum(0)
    return [before, after, shift]


client = ClientApp()


@client.train()
def train(message, context):
    notes, device = message.content["config"]["notes"], context.node_config["partition-id"]
    began = time.time()
    arrays = trained(message.content["arrays"].to_numpy_ndarrays(), device)
    note(notes, what="trained", device=device, round=message.content["config"]["server-round"], began_s=began, ended_s=time.time())
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


server = ServerApp()


@server.main()
def main(grid, context):
    from flwr.app import ConfigRecord

    config = context.run_config
    notes, devices = config["notes"], config["devices"]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=devices, min_available_nodes=devices)

    def released(round_, _arrays):
        note(notes, what="released", round=round_, at_s=time.time())

    note(notes, what="begins", at_s=time.time())
    strategy.start(grid, first(), num_rounds=config["rounds"], train_config=ConfigRecord({"notes": notes}), evaluate_fn=released)
    note(notes, what="over", at_s=time.time())
