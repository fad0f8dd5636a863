#!/usr/bin/env python3
"""Compares quantized weights on the CPU with llama.cpp, which computes on the same GGUF files.

usage: benchmarks/peers/quantized.py --model DIR [--command PATH] [--formats Q8_0,Q4_0,Q4_K_M] [--rounds N] [--threads N] [--output FILE]

DIR is a Llama of bf16 weights, as `anyaccel make-model --shape llama-1b --out DIR` writes it. llama.cpp's own quantizer makes a
file of it for each format (or takes those that --folder holds). Needs numpy, llama_cpp and gguf (model.py says how to build them).

Both programs run in turns on the same number of threads: decode, tokens a second of one sequence; batch, of 8 sequences at once;
prefill, of a prompt of 512 tokens whose last logits are wanted. model.py describes the peer's side, `anyaccel bench quantized`
ours, which also measures the memory's speed between runs. Medians count. logits.py compares what both compute from a file.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import model as peers

FORMATS = {  # llama_ftype
    "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18,
    "IQ4_NL": 25, "IQ4_XS": 30, "TQ1_0": 36, "TQ2_0": 37,
}  # fmt: skip
OURS = {"decode": "quantized.decode.tokens", "batch": "quantized.decode_8.tokens", "prefill": "quantized.prefill.tokens"}


def quantize(source, target, file_type, threads):
    import llama_cpp

    # It says several lines of each tensor. llama.cpp keeps the pointer, so that the callback must stay.
    quantize.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quantize.silent, None)
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = file_type, threads
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), parameters):
        sys.exit(f"llama.cpp could not make {target}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
    parser.add_argument("--formats", default="Q8_0,Q4_0,Q4_K_M", help="(default: %(default)s)")
    parser.add_argument("--folder", help="where the GGUF files are kept (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="of each in a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", help="also write the figures to this file as JSON")
    options = parser.parse_args()
    with open(os.path.join(options.model, "config.json")) as file:
        vocabulary = json.load(file)["vocab_size"]

    def ours(file):
        command = [options.command, "bench", "quantized", "--model", file, "--json"]
        command += ["--prompt-tokens", str(peers.PROMPT), "--runs", str(options.runs), "--seconds", "0.25"]
        environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(options.threads))
        output = subprocess.run(command, check=True, text=True, env=environment, stdout=subprocess.PIPE).stdout
        return {result["name"]: result for result in json.loads(output)["results"]}

    formats = options.formats.split(",")
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe([os.getloadavg()[0]]),
        "threads": options.threads,
        "unit": "tokens/s",
        "formats": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        files = {name: os.path.join(folder, name + ".gguf") for name in formats}
        if any(not os.path.exists(file) for file in files.values()):
            plain = os.path.join(folder, "bf16.gguf")
            if not os.path.exists(plain):
                peers.write_gguf(options.model, plain)
            for name, file in files.items():
                if not os.path.exists(file):
                    quantize(plain, file, FORMATS[name], options.threads)
        figures = {name: {work: {"anyaccel": [], "llama.cpp": [], "ceiling": []} for work in OURS} for name in formats}
        loads = {name: {"ready_ms": [], "peak_gb": []} for name in formats}
        for _ in range(options.rounds):
            for name, file in files.items():
                own = ours(file)
                loads[name]["ready_ms"].append(own["quantized.load.ready"]["value"])
                loads[name]["peak_gb"].append(own["quantized.load.peak_memory"]["value"])
                server = peers.Server(sys.executable, "llama", file, options, vocabulary)
                result["llama.cpp"] = server.versions
                for work, own_name in OURS.items():
                    figures[name][work]["anyaccel"].append(own[own_name]["value"])
                    figures[name][work]["ceiling"].append(own[own_name]["ceiling"])
                    figures[name][work]["llama.cpp"] += server.ask(f"{work} {options.runs}")
                    time.sleep(0.5)  # threads that wait for work by spinning fall asleep
                server.process.stdin.close()
                server.process.wait()
                result["machine"]["load"].append(os.getloadavg()[0])
        for name, file in files.items():
            entry = {"file_gb": os.path.getsize(file) * 1e-9}
            entry |= {key: statistics.median(values) for key, values in loads[name].items()}
            for work, by in figures[name].items():
                entry[work] = {who: {"median": statistics.median(v), "least": min(v), "most": max(v)} for who, v in by.items()}
            result["formats"][name] = entry

    print(f"the same GGUF files, {options.threads} threads, {options.rounds} rounds: decode of one sequence, batch of {peers.SEQUENCES}, "
          f"prefill of {peers.PROMPT} tokens\n")  # fmt: skip
    print(f"{'tokens/s':>22} {'ours':>8} {'of ceiling':>11} {'llama.cpp':>10} {'ours / it':>10}")
    for name, entry in result["formats"].items():
        print(f"{name}: {entry['file_gb']:.3f} GB, ready in {entry['ready_ms']:.1f} ms, peak memory {entry['peak_gb']:.3f} GB")
        for work in OURS:
            own, peer, ceiling = (entry[work][who]["median"] for who in ("anyaccel", "llama.cpp", "ceiling"))
            share = f"{own / ceiling:.2f}" if ceiling else "-"
            print(f"{work:>22} {own:>8.1f} {share:>11} {peer:>10.1f} {own / peer:>10.2f}")
    if options.output:
        with open(options.output, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
