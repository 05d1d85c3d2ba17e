"""PyTorch on the same work as `keyhush pretrain`: nn.LSTM (cuDNN) and plain SGD over one long stream, the state carried.

Prints one JSON line: tokens a second, the median over the steps, for a preset of Keyhush; eager, as people write it, or with a whole
step, forward, backward and SGD, recorded as one CUDA graph. The unit norms of mcmahan2018's embeddings are spared.
"""
import argparse, json, time
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["mcmahan2018", "zaremba650"], required=True)
parser.add_argument("--precision", choices=["float32", "tf32"], required=True)
parser.add_argument("--graph", action="store_true")
parser.add_argument("--batch", type=int, default=20)
parser.add_argument("--unroll", type=int, default=35)
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
V, E, H, LAYERS, DROPOUT = {"mcmahan2018": (10_000, 96, 256, 1, 0.0), "zaremba650": (30_000, 650, 650, 2, 0.5)}[args.model]
B, T = args.batch, args.unroll


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Parameter(torch.randn(V, E) * 0.1)
        self.lstm = nn.LSTM(E, H, LAYERS, dropout=DROPOUT if LAYERS > 1 else 0.0)
        self.leave_out = nn.Dropout(DROPOUT)
        self.out = nn.Linear(H, E) if args.model == "mcmahan2018" else nn.Linear(H, V)

    def forward(self, x, state):
        shown, state = self.lstm(self.leave_out(F.embedding(x, self.emb)), state)
        out = self.out(self.leave_out(shown))
        return (out @ self.emb.T if args.model == "mcmahan2018" else out), state


torch.manual_seed(0)
model = Model().cuda()
weights = list(model.parameters())
# Zipf's law, as the text has it.
tokens = (V ** torch.rand(B, T * args.steps + 1, device="cuda") - 1).long().clamp(max=V - 1).T.contiguous()
x, y = torch.empty(T, B, dtype=torch.long, device="cuda"), torch.empty(T, B, dtype=torch.long, device="cuda")
h, c = torch.zeros(LAYERS, B, H, device="cuda"), torch.zeros(LAYERS, B, H, device="cuda")
total = torch.zeros((), device="cuda")


def step():
    for w in weights:
        w.grad = None
    logits, state = model(x, (h, c))
    loss = F.cross_entropy(logits.reshape(-1, V), y.reshape(-1))
    loss.backward()
    with torch.no_grad():
        torch._foreach_add_(weights, [w.grad for w in weights], alpha=-0.5)
        h.copy_(state[0]), c.copy_(state[1])
        total.add_(loss.detach())


def feed(s):
    x.copy_(tokens[s * T : (s + 1) * T])
    y.copy_(tokens[s * T + 1 : (s + 1) * T + 1])


feed(0)
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.synchronize()
if args.graph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
times = []
for _ in range(5):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for s in range(args.steps):
        feed(s)
        graph.replay() if args.graph else step()
        # A loop that watches its loss asks for it now and then.
        if s % 32 == 31:
            total.item()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - began) / args.steps)
each = sorted(times)[len(times) // 2]
how = "a CUDA graph a step" if args.graph else "eager"
print(json.dumps({"peer": f"torch {torch.__version__}, {how}", "model": args.model, "precision": args.precision, "batch": B, "unroll": T,
                  "ms_per_step": each * 1e3, "tokens_per_s": B * T / each}))
