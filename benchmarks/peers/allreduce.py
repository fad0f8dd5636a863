#!/usr/bin/env python3
"""Compares all-reduces of fp32 between two ranks of a core each: anyaccel, OpenMPI, Intel MPI, Gloo, PyTorch and DeepSpeed.

usage: benchmarks/peers/allreduce.py [--command PATH] [--rounds N] [--output FILE] [--no-torch]

The programs run in turns, each loop the same: a batch of all-reduces in place between two clock readings, the least of many
batches. Of all rounds the least counts, for each program, and all have as many: what else runs on the machine only adds.
Gloo, PyTorch and DeepSpeed run twice in a round, bound to a core each and not bound: Gloo has threads of its own, and takes up to
ten times as long when they have to share the core of a bound rank.
`anyaccel` has memory of the program's own, as the peers have; `shared` is anyaccel with tensors of its accelerator, which
all ranks have mapped, each written anew by its owner before every all-reduce.
OpenMPI and Gloo need libopenmpi-dev, openmpi-bin and libgloo-dev, Intel MPI what tools/install_python_packages has put into
build/python_packages; what is missing is left out and said so. PyTorch (gloo)
and DeepSpeed (inference_all_reduce) are measured when `import torch` and `import deepspeed` work.
"""
import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine

SIZES = [0, 8, 64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20,
         4 << 20, 8 << 20, 32 << 20]  # fmt: skip
LOOPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "allreduce_loops")
PACKAGES = os.path.abspath(os.path.join(LOOPS, "..", "..", "..", "build", "python_packages"))


def lines_of(output):
    """{bytes: microseconds} of lines "BYTES MICROSECONDS"."""
    return {int(line.split()[0]): float(line.split()[1]) for line in output.splitlines()}


# -- the peers --


class OpenMPI:
    name = "openmpi"

    def __init__(self, folder):
        compiler = shutil.which("mpicc.openmpi") or "mpicc"
        self.run = shutil.which("mpirun.openmpi") or "mpirun"
        self.program = os.path.join(folder, "mpi")
        subprocess.run([compiler, "-O2", os.path.join(LOOPS, "mpi.c"), "-o", self.program], check=True)

    def version(self):
        return subprocess.run([self.run, "--version"], text=True, capture_output=True).stdout.splitlines()[0]

    def measure(self, sizes):
        command = [self.run, "--bind-to", "core", "-np", "2"] + (["--allow-run-as-root"] if os.getuid() == 0 else [])
        command += [self.program] + [str(size) for size in sizes]
        return lines_of(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout)


class IntelMPI:
    """Of the folder that tools/install_python_packages makes."""

    name = "impi"

    def __init__(self, folder):
        self.environment = dict(os.environ, I_MPI_ROOT=PACKAGES, I_MPI_PIN_PROCESSOR_LIST="0,1")
        self.run = os.path.join(PACKAGES, "bin", "mpiexec.hydra")
        self.program = os.path.join(folder, "impi")
        compiler = os.path.join(PACKAGES, "bin", "mpigcc")
        subprocess.run([compiler, "-O2", os.path.join(LOOPS, "mpi.c"), "-o", self.program], env=self.environment, check=True)

    def version(self):
        shown = subprocess.run([self.run, "--version"], env=self.environment, text=True, capture_output=True)
        return shown.stdout.splitlines()[0]

    def measure(self, sizes):
        command = [self.run, "-n", "2", self.program] + [str(size) for size in sizes]
        return lines_of(subprocess.run(command, env=self.environment, check=True, text=True, stdout=subprocess.PIPE).stdout)


class Pair:
    """Two processes, of which the first prints: once on a core each and once on any, because threads of Gloo's own share a rank's core."""

    def measure(self, sizes):
        best = {}
        for bound in (True, False):
            keep_least(best, self.measure_once(sizes, bound))
        return best

    def measure_once(self, sizes, bound):
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(2):
                core = sorted(os.sched_getaffinity(0))[rank]
                environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_SIZE="2",
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", OMP_NUM_THREADS="1",
                                   DS_ACCELERATOR="cpu", GLOO_SOCKET_IFNAME="lo")  # fmt: skip
                binding = ["taskset", "-c", str(core)] if bound else []
                ranks.append(subprocess.Popen(binding + self.arguments(folder, sizes), env=environment, text=True,
                                              stdout=subprocess.PIPE))  # fmt: skip
            output = ranks[0].communicate()[0]
            ranks[1].communicate()
        if any(rank.returncode for rank in ranks):
            raise RuntimeError(f"{self.name} ended with {[rank.returncode for rank in ranks]}")
        return lines_of(output)


class Gloo(Pair):
    name = "gloo"

    def __init__(self, folder):
        self.program = os.path.join(folder, "gloo")
        subprocess.run(["g++", "-O2", os.path.join(LOOPS, "gloo.cpp"), "-lgloo", "-lpthread", "-o", self.program],
                       check=True)  # fmt: skip

    def version(self):
        return "as Debian packages it (libgloo-dev)"

    def arguments(self, folder, sizes):
        return [self.program, folder] + [str(size) for size in sizes]


class Torch(Pair):
    """This script with --loop, as two ranks."""

    def __init__(self, name):
        self.name = name

    def version(self):
        code = f"import {self.name}; print({self.name}.__version__)"
        return subprocess.run([sys.executable, "-c", code], text=True, capture_output=True).stdout.splitlines()[-1]

    def arguments(self, folder, sizes):
        return [sys.executable, os.path.abspath(__file__), "--loop", self.name] + [str(size) for size in sizes]


def torch_loop(name, sizes):
    import time

    import torch

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no figure
    torch.set_num_threads(1)
    if name == "deepspeed":
        import deepspeed

        deepspeed.init_distributed("gloo")
        reduce = deepspeed.comm.inference_all_reduce
    else:
        torch.distributed.init_process_group("gloo")
        reduce = torch.distributed.all_reduce
    for size in sizes:
        data = torch.empty(size // 4, dtype=torch.float32)
        batch = min(max((4 << 20) // (size + 1), 1), 20)
        best = 1e9
        for _ in range(20 if size < 1 << 20 else 5):
            data.uniform_(0.5, 0.6)
            torch.distributed.barrier()
            start = time.perf_counter()
            for _ in range(batch):
                torch.distributed.barrier() if size == 0 else reduce(data)
            best = min(best, (time.perf_counter() - start) / batch)
        if torch.distributed.get_rank() == 0:
            print(size, 1e6 * best, file=out, flush=True)
    torch.distributed.destroy_process_group()


# -- the comparison --


def ours(command):
    """({bytes: us}, {bytes: us in shared memory}, {bytes: ceiling})."""
    output = subprocess.run([command, "bench", "allreduce", "--runs", "2", "--json"], check=True, text=True,
                            env=dict(os.environ, DS_ACCELERATOR="cpu"), stdout=subprocess.PIPE).stdout  # fmt: skip
    private, shared, ceilings = {}, {}, {}
    for result in json.loads(output)["results"]:
        words = result["name"].split(".")
        size = 0 if words[-1] == "barrier" else int(words[-1])
        (shared if words[1] == "shared" else private)[size] = result["value"]
        ceilings[size] = result["ceiling"]
    return private, shared, ceilings


def keep_least(best, figures):
    for size, value in figures.items():
        best[size] = min(best.get(size, float("inf")), value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", help="also write the figures to this file as JSON")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    parser.add_argument("sizes", nargs="*", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        torch_loop(options.loop, options.sizes)
        return

    best = {"anyaccel": {}, "shared": {}, "ceiling": {}}
    versions, missing, loads = {}, {}, [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        peers = []
        for peer in (OpenMPI, IntelMPI, Gloo):
            try:
                peers.append(peer(folder))
            except (OSError, subprocess.CalledProcessError) as error:
                missing[peer.name] = str(error)
        for name in () if options.no_torch else ("torch", "deepspeed"):
            found = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True)
            if found.returncode == 0:
                peers.append(Torch(name))
            else:
                missing[name] = "cannot be imported"
        for peer in peers:
            versions[peer.name] = peer.version()
            best[peer.name] = {}
        for _ in range(options.rounds):
            private, shared, ceilings = ours(options.command)
            keep_least(best["anyaccel"], private)
            keep_least(best["shared"], shared)
            keep_least(best["ceiling"], ceilings)
            for peer in list(peers):
                try:
                    keep_least(best[peer.name], peer.measure(SIZES))
                except (RuntimeError, subprocess.CalledProcessError) as error:
                    missing[peer.name] = str(error)
                    peers.remove(peer)
            loads.append(os.getloadavg()[0])

    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}", file=sys.stderr)
    names = [name for name in best if best[name] and name != "ceiling"]
    columns = [name for name in names if name not in ("anyaccel", "shared")]
    print("all-reduce of fp32 between 2 ranks, microseconds (0 bytes: barrier); /peer: time over the peer's\n")
    print(f"{'bytes':>9} {'ceiling':>9}" + "".join(f" {name:>10}" for name in names)
          + "".join(f" {'/' + name:>10}" for name in columns) + "  shared/best MPI")  # fmt: skip
    rows = []
    for size in SIZES:
        row = {"bytes": size, "ceiling": best["ceiling"].get(size)}
        row |= {name: best[name][size] for name in names if size in best[name]}
        rows.append(row)
        text = f"{size:>9} {row['ceiling']:>9.3f}"
        text += "".join(f" {row[name]:>10.3f}" if name in row else f" {'-':>10}" for name in names)
        text += "".join(f" {row['anyaccel'] / row[name]:>10.4f}" if name in row else f" {'-':>10}" for name in columns)
        best_mpi = min((row[name] for name in ("openmpi", "impi") if name in row), default=None)
        if "shared" in row and best_mpi:
            text += f" {row['shared'] / best_mpi:>10.4f}"
        print(text)
    if options.output:
        result = {
            "date": datetime.date.today().isoformat(),
            "machine": machine.describe(statistics.median(loads)),
            "unit": "us",
            "rounds": options.rounds,
            "versions": versions,
            "missing": missing,
            "allreduce": rows,
        }
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
