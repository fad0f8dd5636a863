#!/usr/bin/env python3
"""Compares a training step of the bundled model's shape with the same model in PyTorch (eager) on the CPU; prints JSON.

usage: benchmarks/peers/train.py [--program PATH] [--rounds N] [--runs N] [--threads N]

Needs torch. Two processes run steps in turns, on --threads threads: a decoder of models/stories' sizes (6 layers, hidden 192, 6
heads over 2 of keys and values, intermediate 512, 2048 tokens, tied) on 8 sequences of 256 tokens, fp32: forward, backward,
clipping by the norm of all gradients, AdamW. Ours is `anyaccel_train --bench`, a fresh process each turn, whose first two
steps are not counted. PyTorch's is written in plain modules over what is fast there: scaled_dot_product_attention, rms_norm,
cross_entropy, AdamW with fused=True. Medians count. Memory is what the process's largest resident set has beyond the one that it
had before the model was made, so that the libraries of neither count.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time

import machine

HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, TOKENS, BATCH, LENGTH = 192, 6, 6, 2, 512, 2048, 8, 256
HEAD_DIM = HIDDEN // HEADS


def resident(key):
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(key + ":"))


def make_model():
    import torch
    import torch.nn.functional as F
    from torch import nn

    places = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)[None]
    cosines, sines = (torch.cat([f(places)] * 2, -1) for f in (torch.cos, torch.sin))

    def rotate(x):
        low, high = x.chunk(2, -1)
        return x * cosines + torch.cat([-high, low], -1) * sines

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
            self.q = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
            self.k = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
            self.v = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
            self.o = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
            self.gate = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
            self.up = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
            self.down = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

        def forward(self, x):
            h = self.norm1(x)
            q, k, v = (p(h).view(BATCH, LENGTH, -1, HEAD_DIM).transpose(1, 2) for p in (self.q, self.k, self.v))
            k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (rotate(k), v))
            a = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(BATCH, LENGTH, -1))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(TOKENS, HIDDEN)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)

        def forward(self, ids, targets):
            x = self.embedding(ids)
            for layer in self.layers:
                x = layer(x)
            scores = F.linear(self.norm(x), self.embedding.weight)
            return F.cross_entropy(scores.view(-1, TOKENS), targets.view(-1))

    return Decoder()


def serve(threads):
    """The peer's process: answers a number of steps with the seconds of each, and with its memory."""
    import torch

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(threads)
    before = resident("VmRSS")
    model = make_model()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], lr=2e-3, fused=True)

    def step():
        rows = torch.randint(TOKENS, (BATCH, LENGTH + 1))
        optimizer.zero_grad(set_to_none=True)
        loss = model(rows[:, :-1], rows[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    step()
    step()
    about = {"torch": torch.__version__, "parameters": sum(p.numel() for p in model.parameters())}
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        milliseconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        answer = {"milliseconds": milliseconds, "memory": resident("VmHWM") - before}
        print(json.dumps(answer), file=answers, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(machine.ROOT, "build/release/bin/anyaccel_train"),
                        help="examples/train (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="steps of each in a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads)
        return
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OMP_PROC_BIND="true", DS_ACCELERATOR="cpu")
    server = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--serve", "--threads", str(options.threads)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)  # fmt: skip
    about = json.loads(server.stdout.readline())
    sizes = {"hidden": HIDDEN, "layers": LAYERS, "heads": HEADS, "kv-heads": KV_HEADS, "intermediate": INTERMEDIATE,
             "batch": BATCH, "length": LENGTH, "weight-decay": 0.05}  # fmt: skip
    command = [options.program, "--bench", str(options.runs), "--tokenizer", os.path.join(machine.ROOT, "models/stories")]
    command += [part for name, value in sizes.items() for part in ("--" + name, str(value))]
    times, memory, loads = {"anyaccel": [], "torch": []}, {"anyaccel": [], "torch": []}, []
    for _ in range(options.rounds):
        loads.append(os.getloadavg()[0])
        figure = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        if figure["parameters"] != about["parameters"]:
            sys.exit(f"the models differ: {figure['parameters']} parameters, {about['parameters']} in PyTorch")
        times["anyaccel"].append(statistics.median(figure["milliseconds"]))
        memory["anyaccel"].append(figure["peak_process"] - figure["process_before"])
        server.stdin.write(f"{options.runs}\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        times["torch"].append(statistics.median(answer["milliseconds"]))
        memory["torch"].append(answer["memory"])
    server.stdin.close()
    server.wait()
    step = {name: {"median": statistics.median(of), "least": min(of), "most": max(of)} for name, of in times.items()}
    step["torch_over_anyaccel"] = statistics.median(b / a for a, b in zip(times["anyaccel"], times["torch"]))
    print(json.dumps({
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(loads),
        "compared": f"a training step of {BATCH} sequences of {LENGTH} tokens, fp32, with clipping and AdamW; PyTorch eager, AdamW fused",
        "threads": options.threads, "unit": "ms", "parameters": about["parameters"], "torch_version": about["torch"],
        "training_step": step, "memory": {name: max(of) for name, of in memory.items()},
    }, indent=2))  # fmt: skip


main()
