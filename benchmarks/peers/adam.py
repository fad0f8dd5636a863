#!/usr/bin/env python3
"""Compares anyaccel's CPU Adam with torch.optim.Adam(fused=True) and DeepSpeed's CPUAdam; prints JSON.

usage: benchmarks/peers/adam.py [--command PATH] [--elements N] [--rounds N] [--threads N] [--no-deepspeed]

Needs torch; DeepSpeed is measured when `import deepspeed` works and its op compiles (pip install deepspeed ninja).
Everything is float32, without weight decay. Two cases: one parameter of N elements (28 bytes moved per element and step)
and 1000 parameters of 4096 elements. The programs run in turns (ours, torch, ours, DeepSpeed, ...), each on --threads
threads, on memory that was written before, at addresses that are no powers of two apart, in huge pages. "stream" is a
loop over the same bytes that computes next to nothing, measured by `anyaccel bench adam` in the same process and turn as
our own figure. A ratio is the median of those of the turns, because the memory's speed may change from one turn to the next.
"""
import argparse
import datetime
import importlib.metadata
import json
import mmap
import os
import statistics
import subprocess
import sys
import time

import machine

SMALL_TENSORS, SMALL_SIZE = 1000, 4096
BYTES_PER_ELEMENT = 28
PAGE = 4096


# -- the peers' process: answers "NAME CASE RUNS" with the seconds of each step --


def arrays(torch, elements):
    """Four float32 tensors in huge pages, odd numbers of pages apart beyond their size; written."""
    each = -(-elements * 4 // PAGE) * PAGE
    memory = mmap.mmap(-1, 4 * (each + 15 * PAGE))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    result = []
    for k in range(4):
        tensor = torch.frombuffer(memory, dtype=torch.float32, count=elements, offset=k * (each + (2 * k + 9) * PAGE))
        result.append(tensor.uniform_(0.01, 0.51))
    return result


def parameters(torch, case, elements):
    """Lists of (param, grad, exp_avg, exp_avg_sq)."""
    if case == "large":
        return [arrays(torch, elements)]
    whole = arrays(torch, SMALL_TENSORS * SMALL_SIZE)
    return [[t[i * SMALL_SIZE : (i + 1) * SMALL_SIZE].clone() for t in whole] for i in range(SMALL_TENSORS)]


def make_optimizer(torch, name, tensors):
    params = []
    for param, grad, _, _ in tensors:
        params.append(torch.nn.Parameter(param))
        params[-1].grad = grad
    if name == "torch":
        optimizer = torch.optim.Adam(params, lr=1e-6, fused=True)
    else:
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam(params, lr=1e-6, fp32_optimizer_states=True)
    for param, (_, _, exp_avg, exp_avg_sq) in zip(params, tensors):
        step = torch.tensor(0.0) if name == "torch" else 0
        optimizer.state[param] = {"step": step, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    return optimizer


def serve(elements, threads):
    import torch

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(threads)
    tensors = {case: parameters(torch, case, elements) for case in ("large", "small")}
    optimizers = {}
    versions = {}
    for package in ("torch", "deepspeed"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        name, case, runs = line.split()
        try:
            if (name, case) not in optimizers:
                optimizers[name, case] = make_optimizer(torch, name, tensors[case])
            optimizer = optimizers[name, case]
            steps = 1 if case == "large" else 20
            optimizer.step()
            seconds = []
            for _ in range(int(runs)):
                start = time.perf_counter()
                for _ in range(steps):
                    optimizer.step()
                seconds.append((time.perf_counter() - start) / steps)
            answer = {"seconds": seconds}
        except Exception as error:  # DeepSpeed's builder raises many kinds
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


# -- the comparison --


def summary(values):
    median = statistics.median(values)
    return {"median": median, "spread": (max(values) - min(values)) / median, "runs": len(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
    parser.add_argument("--elements", type=int, default=1 << 28)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="steps of each in a turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-deepspeed", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.elements, options.threads)
        return

    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OMP_PROC_BIND="true", DS_ACCELERATOR="cpu")
    arguments = [sys.executable, os.path.abspath(__file__), "--serve", "--elements", str(options.elements)]
    server = subprocess.Popen(
        arguments + ["--threads", str(options.threads)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    versions = json.loads(server.stdout.readline())
    peers = ["torch"] + ([] if options.no_deepspeed else ["deepspeed"])
    errors = {}

    def ask(name, case):
        server.stdin.write(f"{name} {case} {options.runs}\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if "error" in answer:
            errors[name] = answer["error"]
        return answer.get("seconds", [])

    def ours():
        command = [options.command, "bench", "adam", "--json", "--elements", str(options.elements)]
        output = subprocess.run(command + ["--runs", str(options.runs)], env=environment, check=True, text=True,
                                stdout=subprocess.PIPE).stdout  # fmt: skip
        return {r["name"]: r for r in json.loads(output)["results"]}

    scale = {"large": 1e-9 * BYTES_PER_ELEMENT * options.elements, "small": float(SMALL_TENSORS * SMALL_SIZE)}
    names = {"large": "adam.bandwidth", "small": "adam.small"}
    rates = {case: {"anyaccel": [], "stream": [], **{p: [] for p in peers}} for case in names}
    ratios = {case: {peer: [] for peer in peers} for case in names}
    loads = [os.getloadavg()[0]]
    for _ in range(options.rounds):
        for peer in peers:
            own = ours()
            for case, name in names.items():
                rates[case]["anyaccel"].append(own[name]["value"])
                rates[case]["stream"].append(own[name]["ceiling"])
            time.sleep(0.5)
            if peer not in errors:
                for case, name in names.items():
                    turn = [scale[case] / s for s in ask(peer, case)]
                    rates[case][peer] += turn
                    if turn:
                        ratios[case][peer].append(own[name]["value"] / statistics.median(turn))
            time.sleep(0.5)
        loads.append(os.getloadavg()[0])
    server.stdin.close()
    server.wait()

    result = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(loads),
        "compared": "steps of Adam in fp32; large: one parameter, small: 1000 parameters of 4096 elements; torch: Adam(fused=True), "
                    "deepspeed: CPUAdam, stream: a loop over the same bytes that computes next to nothing",
        "threads": options.threads,
        "elements": options.elements,
        "versions": versions,
        "errors": errors,
    }
    for case, unit in (("large", "GB/s"), ("small", "elements/s")):
        figures = {who: summary(values) for who, values in rates[case].items() if values}
        stream = figures["stream"]["median"]
        for who, figure in figures.items():
            figure["of_stream"] = figure["median"] / stream
            if who in peers:
                figure["anyaccel_is_faster_by"] = statistics.median(ratios[case][who])
        result[case] = {"unit": unit, **figures}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
