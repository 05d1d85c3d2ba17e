"""PyTorch one user at a time, as pfl-research and Flower train a cohort: nn.LSTM, eager. For mcmahan2018.

Prints one JSON line: milliseconds of a round of 100 users, from 10 of them.
"""
import json, time
import torch
import torch.nn as nn
import torch.nn.functional as F

V, E, H, B, T, S = 10_000, 96, 256, 8, 10, 20
USERS = 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Parameter(torch.randn(V, E) * 0.1)
        self.lstm, self.dense = nn.LSTM(E, H, batch_first=True), nn.Linear(H, E)

    def forward(self, x, state):
        shown, state = self.lstm(F.embedding(x, self.emb), state)
        return self.dense(shown) @ self.emb.T, state


torch.manual_seed(0)
model = Model().cuda()
start = [p.detach().clone() for p in model.parameters()]
tokens = (V ** torch.rand(USERS, B, T * S + 1, device="cuda") - 1).long().clamp(max=V - 1)


def train(user):
    weights = list(model.parameters())
    with torch.no_grad():
        torch._foreach_copy_(weights, start)
    state = None
    for s in range(S):
        logits, state = model(tokens[user, :, s * T : (s + 1) * T], state)
        state = tuple(t.detach() for t in state)
        loss = F.cross_entropy(logits.reshape(-1, V), tokens[user, :, s * T + 1 : (s + 1) * T + 1].reshape(-1))
        model.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            torch._foreach_add_(weights, [p.grad for p in weights], alpha=-0.5)
    with torch.no_grad():
        d = torch._foreach_sub(weights, start)
        torch._foreach_mul_(d, torch.clamp(1.0 / torch.sqrt(sum((x * x).sum() for x in d)), max=1.0))


train(0)
torch.cuda.synchronize()
began = time.perf_counter()
for u in range(USERS):
    train(u)
torch.cuda.synchronize()
ms = (time.perf_counter() - began) * 1e3 * 100 / USERS
print(json.dumps({"peer": f"torch {torch.__version__}, one user at a time", "model": "mcmahan2018", "precision": "float32", "users": 100, "ms_per_round": ms}))
