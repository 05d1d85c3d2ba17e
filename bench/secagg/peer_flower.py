"""One round of Flower's SecAgg+, in this process: its own workflow and client code, without a network.

Prints a line of JSON. Called by bench.py with the number of clients, coordinates, neighbours, threshold and clients that
vanish before their input.
"""

import collections
import copy
import importlib
import json
import logging
import resource
import sys
import time

import flwr
import flwr.compat.common.recorddict_compat as compat
import flwr.server.workflow.secure_aggregation.secaggplus_workflow as server_side
import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.client.mod.utils import make_ffn
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.server import ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.server.workflow.secure_aggregation import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

STAGES = ("keys", "shares", "input", "unmask")
VANISH_AT = STAGES.index("input")
EXAMPLES = 100
# The function in it has the same name, and hides it.
client_side = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
# What turns numbers into residues and back, which Keyhush's round does not do; and how Flower carries a model.
NUMBERS = {
    client_side: ("quantize", "parameters_multiply", "factor_combine", "parameters_to_ndarrays"),
    server_side: ("dequantize", "factor_extract", "ndarrays_to_parameters"),
}


class Clock:
    """CPU seconds by name."""

    def __init__(self):
        self.seconds = collections.Counter()

    def timed(self, name, function):
        def call(*args, **kwargs):
            before = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.process_time() - before

        return call


class Proxy(ClientProxy):
    """A client, as far as the strategy knows it."""

    def __init__(self, number):
        super().__init__(str(number))
        self.node_id = number

    def unused(self, *args, **kwargs):
        raise NotImplementedError

    get_properties = get_parameters = fit = evaluate = reconnect = unused


class Strategy(FedAvg):
    """Everybody takes part; the mean is kept."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.mean = numbers, None

    def configure_fit(self, server_round, parameters, client_manager):
        return [(Proxy(number), FitIns(parameters, {})) for number in self.numbers]

    def aggregate_fit(self, server_round, results, failures):
        self.mean = parameters_to_ndarrays(results[0][1].parameters)[0]
        return None, {}


class Manager:
    """As many clients as there are."""

    def __init__(self, clients):
        self.clients = clients

    def num_available(self):
        return self.clients


class InProcess:
    """A grid that calls each client in turn. Those who vanish are not called from the input on."""

    def __init__(self, apps, contexts, vanished, clock):
        self.apps, self.contexts, self.vanished, self.clock = apps, contexts, vanished, clock
        self.stage, self.up = 0, [0] * len(STAGES)

    def send_and_receive(self, messages, *, timeout=None):
        replies = [self.deliver(message) for message in messages if not self.is_gone(message.metadata.dst_node_id)]
        self.stage += 1
        return replies

    def is_gone(self, number):
        return self.stage >= VANISH_AT and number in self.vanished

    def deliver(self, message):
        number = message.metadata.dst_node_id
        # What the network would do: an id for the message, and content of one's own. Not counted.
        prepare = self.clock.timed("harness", copy.deepcopy)
        message.metadata.__dict__["_message_id"] = "message"
        message.__dict__["_content"] = prepare(message.content)
        client = self.clock.timed(STAGES[self.stage], self.apps[number])
        reply = client(message, self.contexts[number])
        reply.metadata.__dict__["_src_node_id"] = number
        self.up[self.stage] += sum(size(v) for r in reply.content.config_records.values() for v in r.values())
        return reply


def size(value):
    """Bytes of a value in a message: a number takes eight."""
    if isinstance(value, list):
        return sum(map(size, value))
    return len(value) if isinstance(value, bytes) else 8


def app(update, clock):
    """A client that has trained: Flower's side of the protocol around what it would send."""

    def fit(message, context):
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([update]), EXAMPLES, {})
        return Message(compat.fitres_to_recorddict(result, False), reply_to=message)

    return make_ffn(clock.timed("harness", fit), [secaggplus_mod])


def context(number):
    return Context(run_id=1, node_id=number, node_config={}, state=RecordDict({}), run_config={})


def legacy(strategy, clients):
    whole = LegacyContext(
        context(0), config=ServerConfig(num_rounds=1), strategy=strategy, client_manager=Manager(clients)
    )
    nothing = ndarrays_to_parameters([np.zeros(1, np.float32)])
    whole.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    whole.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(nothing, True)
    return whole


def main(clients, dimension, degree, threshold, dropped):
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    clock = Clock()
    for module, names in NUMBERS.items():
        for name in names:
            setattr(module, name, clock.timed("numbers", getattr(module, name)))
    random = np.random.default_rng(0)
    updates = {n: random.uniform(-1, 1, dimension).astype(np.float32) for n in range(1, clients + 1)}
    vanished = set(list(updates)[:dropped])
    grid = InProcess(
        {n: app(update, clock) for n, update in updates.items()}, {n: context(n) for n in updates}, vanished, clock
    )
    strategy = Strategy(list(updates))
    whole = legacy(strategy, clients)
    # Flower counts a client among its own neighbours.
    workflow = SecAggPlusWorkflow(
        num_shares=degree + 1, reconstruction_threshold=threshold, max_weight=float(EXAMPLES), clipping_range=1.0
    )
    wall, cpu = time.perf_counter(), time.process_time()
    workflow(grid, whole)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if strategy.mean is None:
        sys.exit("Flower's round did not end")
    expected = np.mean([update for n, update in updates.items() if n not in vanished], axis=0)
    error = float(np.abs(strategy.mean - expected).max())
    if error > 1e-5:
        sys.exit(f"Flower's mean is off by {error}")
    answer = {
        "version": flwr.__version__,
        # Flower's SecAgg+ as it is, from updates to their mean; what stands for training and network is left out.
        "cpu_s": cpu - clock.seconds["harness"],
        # Of that, from residues to their sum.
        "protocol_s": cpu - clock.seconds["harness"] - clock.seconds["numbers"],
        "harness_s": clock.seconds["harness"],
        # Of all clients, with what stands for training.
        "clients_s": {stage: clock.seconds[stage] for stage in STAGES},
        "wall_s": wall,
        "bytes_up_per_client": [up / clients for up in grid.up],
        "largest_error": error,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
