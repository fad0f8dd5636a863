#!/usr/bin/env python3
"""Compares the training step of an encoder layer with PyTorch's TransformerEncoderLayer on the CPU; prints JSON.

usage: benchmarks/peers/transformer.py [--command PATH] [--rounds N] [--threads N]

Needs torch. Both programs run forward and backward of one layer in turns, on --threads threads: 512 tokens, hidden size 1024, 16
heads, intermediate size 4096, fp32, dropout 0.1, norms before; gradients of the input and of all weights, made anew in each
step. PyTorch runs its layer eagerly in training mode with gelu's tanh form. Ours is `anyaccel bench transformer`, whose
figure is beside the rate of fp32 multiply-adds in the same process and turn. Medians count.
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

TOKENS, HIDDEN, HEADS, INTERMEDIATE = 512, 1024, 16, 4096
OPERATIONS = 3 * (2 * TOKENS * (4 * HIDDEN**2 + 2 * HIDDEN * INTERMEDIATE) + 4 * TOKENS**2 * HIDDEN)


def serve(threads):
    """The peer's process: answers a number of runs with the seconds of each step."""
    import torch
    import torch.nn.functional as F

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(threads)
    layer = torch.nn.TransformerEncoderLayer(
        HIDDEN, HEADS, INTERMEDIATE, dropout=0.1, activation=lambda x: F.gelu(x, approximate="tanh"), batch_first=True,
        norm_first=True)
    layer.train()
    x = torch.randn(1, TOKENS, HIDDEN).requires_grad_()
    upstream = torch.randn(1, TOKENS, HIDDEN)
    mask = torch.zeros(1, TOKENS)

    def step():
        for tensor in [x, *layer.parameters()]:
            tensor.grad = None
        layer(x, src_key_padding_mask=mask).backward(upstream)

    step()
    step()
    print(json.dumps(torch.__version__), file=answers, flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), file=answers, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
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
    version = json.loads(server.stdout.readline())
    ours, ratios, torch_values, loads = [], [], [], []
    for _ in range(options.rounds):
        loads.append(os.getloadavg()[0])
        command = [options.command, "bench", "transformer", "--json", "--runs", str(options.runs)]
        figure = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        figure = [r for r in figure["results"] if r["name"] == "transformer.f32"][0]
        ours.append(figure["value"])
        ratios.append(figure["ratio"])
        server.stdin.write(f"{options.runs}\n")
        server.stdin.flush()
        torch_values.append(statistics.median(1e-9 * OPERATIONS / s for s in json.loads(server.stdout.readline())))
    server.stdin.close()
    server.wait()
    print(json.dumps({
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(loads),
        "compared": f"forward and backward of an encoder layer: {TOKENS} tokens, hidden size {HIDDEN}, fp32, dropout 0.1; PyTorch eager",
        "threads": options.threads, "unit": "GFLOP/s",
        "torch_version": version, "anyaccel": ours, "torch": torch_values,
        "of_the_multiply_add_rate": statistics.median(ratios),
        "anyaccel_over_torch": statistics.median(a / b for a, b in zip(ours, torch_values)),
    }, indent=2))  # fmt: skip


main()
