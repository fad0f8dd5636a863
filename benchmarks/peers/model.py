#!/usr/bin/env python3
"""Compares a language model's decode and prefill on the CPU: anyaccel, PyTorch (eager and compiled) and llama.cpp.

usage: benchmarks/peers/model.py --model DIR [--command PATH] [--contexts N,...] [--prompts N,...] [--rounds N] [--threads N]
                                 [--llama LABEL=PYTHON]... [--output FILE]

DIR is a Llama of bf16 weights, as `anyaccel make-model --shape llama-1b --out DIR` writes it; all programs run the same
weights. Needs torch, safetensors and numpy; llama.cpp is measured when `import llama_cpp, gguf` works (`pip install
--no-binary llama-cpp-python llama-cpp-python gguf` builds it for this machine), and once more for each interpreter given by
--llama, whose llama.cpp may be built with other flags. It keeps keys and values in fp16, its default, and gets the
weights as a GGUF file in bf16. PyTorch's model is the one of gpu.py with a static cache; "compiled" is torch.compile.

The programs run in turns, ours before each of the others, on the same number of threads. decode: tokens a second of one
sequence from position 64 on, greedy, each token read back, in batches of 16; "decode N" is the same from position N on, for
llama.cpp only (PyTorch's static cache is read as a whole in every step). Nobody runs a prompt of N tokens for it: the cache
is filled with copies of a shorter one, llama.cpp's by its own saved state. prefill: tokens a second of a prompt of 512
tokens (or N) whose last logits are wanted. Prompts of more than 512 tokens, of which each takes many seconds, run once in a turn
instead of --runs times, and ours once in a round. Medians count. Before anything is timed, the last logits of one prompt must
agree between PyTorch and llama.cpp (largest difference over largest logit), so that they run the same model. What runs, and how
long it took, is said on the error output.
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

PROMPT, START, BATCH, SEQUENCES = 512, 64, 16, 8
CONTEXTS = [START, 4096, 32768]  # those of `anyaccel bench decode`
CONTEXT = 1024  # slots of a cache, unless a prompt or a context needs more
AGREEMENT = 0.05  # bf16 rounds at other places in each program


def prompt_ids(vocabulary, length):
    state, ids = 1, []
    for _ in range(length):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        ids.append((state >> 33) % vocabulary)
    return ids


def load_weights(directory):
    import glob

    import safetensors.torch

    weights = {}
    for file in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        weights.update(safetensors.torch.load_file(file))
    return weights


# -- the peers: prefill(ids) and decode(id, position), both of which give the last logits' argmax; logits(ids); hold(slots),
# -- before them, for a cache of as many slots --


class Torch:
    def __init__(self, directory, threads, compiled):
        import torch

        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import gpu

        gpu.DEVICE = "cpu"
        torch.set_num_threads(threads)
        self.torch = torch
        with open(os.path.join(directory, "config.json")) as file:
            config = json.load(file)
        layers = config["num_hidden_layers"]
        shape = (config["hidden_size"], layers, config["num_attention_heads"], config["num_key_value_heads"],
                 config["head_dim"], config["intermediate_size"], config["vocab_size"], config["rope_theta"])  # fmt: skip
        self.model = model = gpu.Llama(shape, CONTEXT)
        weights = load_weights(directory)
        take = lambda name: weights.pop(name + ".weight")
        model.embedding.data, model.head.data = take("model.embed_tokens"), take("lm_head")
        for i in range(layers):
            name = f"model.layers.{i}."
            model.qkv[i].data = torch.cat([take(f"{name}self_attn.{part}_proj") for part in "qkv"])
            model.out[i].data = take(name + "self_attn.o_proj")
            model.gate_up[i].data = torch.cat([take(f"{name}mlp.{part}_proj") for part in ("gate", "up")])
            model.down[i].data = take(name + "mlp.down_proj")
            model.norms[2 * i].data = take(name + "input_layernorm")
            model.norms[2 * i + 1].data = take(name + "post_attention_layernorm")
        model.norms[2 * layers].data = take("model.norm")
        assert not weights, list(weights)
        wrap = (lambda f: torch.compile(f, fullgraph=True, dynamic=False)) if compiled else lambda f: f
        self.prompt_step = wrap(lambda ids, positions: model(ids, positions, True))
        self.token_step = wrap(lambda ids, positions: model(ids, positions, False))

    def versions(self):
        return {"torch": self.torch.__version__}

    def hold(self, slots):
        self.model.make_cache(slots)

    def prefill(self, ids):
        with self.torch.no_grad():
            positions = self.torch.arange(len(ids))
            return self.prompt_step(self.torch.tensor(ids), positions).item()

    def decode(self, token, position):
        with self.torch.no_grad():
            return self.token_step(self.torch.tensor([token]), self.torch.tensor([position])).item()

    def logits(self, ids):
        kept = {}
        head = self.torch.nn.functional.linear
        # The model gives the argmax only: its last product is looked at on its way.
        def watch(x, weight, *rest):
            kept["last"] = head(x, weight, *rest)
            return kept["last"]

        self.torch.nn.functional.linear = watch
        try:
            with self.torch.no_grad():
                self.model(self.torch.tensor(ids), self.torch.arange(len(ids)), True)
        finally:
            self.torch.nn.functional.linear = head
        return kept["last"][0].float().tolist()


def load_words(directory):
    """Tensors of bf16 as arrays of 16-bit words: numpy has no bf16, and this needs no torch."""
    import glob

    import numpy

    words = {}
    for file in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        with open(file, "rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
        data = numpy.memmap(file, numpy.uint8, "r", 8 + length)
        for name, entry in header.items():
            if name != "__metadata__":
                assert entry["dtype"] == "BF16", name
                begin, end = entry["data_offsets"]
                words[name] = data[begin:end].view(numpy.uint16).reshape(entry["shape"])
    return words


def write_gguf(directory, path):
    import gguf

    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}  # fmt: skip
    tops = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    import numpy

    for name, tensor in load_words(directory).items():
        name = name.removesuffix(".weight")
        if name in tops:
            target = tops[name]
        else:
            _, _, layer, part = name.split(".", 3)
            target = f"blk.{layer}.{parts[part]}"
            if parts[part] in ("attn_q", "attn_k"):  # GGUF turns neighbours, Hugging Face halves
                count = heads if parts[part] == "attn_q" else kv_heads
                rows, columns = tensor.shape
                tensor = tensor.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        if tensor.ndim == 1:
            writer.add_tensor(target + ".weight", (tensor.astype(numpy.uint32) << 16).view(numpy.float32))
        else:
            data = numpy.ascontiguousarray(tensor).view(numpy.uint8)  # the last dimension in bytes
            writer.add_tensor(target + ".weight", data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiled_state(state, slots, wanted):
    """A saved sequence of llama.cpp (llama_kv_cache::state_write) with its slots repeated up to `wanted`.

    Words of 32 bits: a magic number, the sequence (0), streams (1), slots; for each slot its position, its number of sequences
    (1) and the sequence; whether values are transposed, layers; then for each layer the keys' type, the bytes of a row in
    64 bits, and a row for each slot; then the same for the values. Anything else is refused.
    """
    import struct

    at, out = 0, []

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, state, at)
        at += struct.calcsize("<" + form)
        return values

    magic, *header = take("IIII")
    if header != [0, 1, slots]:
        raise RuntimeError(f"llama.cpp's saved state has another layout: {header}")
    cells = slots
    meta = [take("iII") for _ in range(cells)]
    transposed, layers = take("II")
    if transposed or any(m != (i, 1, 0) for i, m in enumerate(meta)):
        raise RuntimeError("llama.cpp's saved state has another layout")
    out.append(struct.pack("<IIII", magic, 0, 1, wanted))
    out.append(b"".join(struct.pack("<iII", i, 1, 0) for i in range(wanted)))
    out.append(struct.pack("<II", 0, layers))
    for _ in range(2 * layers):
        kind, row = take("iQ")
        rows = state[at : at + cells * row]
        at += cells * row
        out.append(struct.pack("<iQ", kind, row) + (rows * -(-wanted // cells))[: wanted * row])
    if at != len(state):
        raise RuntimeError("llama.cpp's saved state has another layout")
    return b"".join(out)


class LlamaCpp:
    def __init__(self, path, threads):
        import llama_cpp
        import numpy

        self.library, self.numpy = llama_cpp, numpy
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silent, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_batch = parameters.n_ubatch = PROMPT
        parameters.n_threads = parameters.n_threads_batch = threads
        self.parameters, self.context, self.slots, self.batched = parameters, None, 0, None
        self.hold(CONTEXT)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def versions(self):
        info = self.library.llama_print_system_info().decode()
        return {"llama-cpp-python": self.library.__version__, "system": info.strip()}

    def hold(self, slots):
        if slots == self.slots:
            return
        if self.context:
            self.library.llama_free(self.context)
        self.parameters.n_ctx, self.parameters.n_seq_max, self.slots = slots, 1, slots
        self.context = self.library.llama_init_from_model(self.model, self.parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp has no cache of {slots} slots")

    def fill(self, ids, length):
        """Makes a cache of `length` slots, those of the prompt `ids` over and over; see tiled_state()."""
        library, sequence = self.library, 0
        token = self.prefill(ids)
        if length > len(ids):
            size = library.llama_state_seq_get_size(self.context, sequence)
            state = (self.numpy.ctypeslib.ctypes.c_uint8 * size)()
            if library.llama_state_seq_get_data(self.context, state, size, sequence) != size:
                raise RuntimeError("llama.cpp did not save its state")
            tiled = tiled_state(bytes(state), len(ids), length)
            library.llama_memory_clear(library.llama_get_memory(self.context), True)
            data = (self.numpy.ctypeslib.ctypes.c_uint8 * len(tiled)).from_buffer_copy(tiled)
            if library.llama_state_seq_set_data(self.context, data, len(tiled), sequence) != len(tiled):
                raise RuntimeError("llama.cpp did not accept a longer state")
        last = library.llama_memory_seq_pos_max(library.llama_get_memory(self.context), sequence)
        if last != length - 1:
            raise RuntimeError(f"llama.cpp's cache ends at {last}, not {length - 1}")
        return token

    def run(self, ids):
        for begin in range(0, len(ids), PROMPT):  # n_batch tokens at once
            part = ids[begin : begin + PROMPT]
            data = (self.library.llama_token * len(part))(*part)
            if self.library.llama_decode(self.context, self.library.llama_batch_get_one(data, len(part))):
                raise RuntimeError("llama_decode failed")
        last = self.library.llama_get_logits_ith(self.context, -1)
        return self.numpy.ctypeslib.as_array(last, (self.vocabulary,))

    def prefill(self, ids):
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        return int(self.run(ids).argmax())

    def decode(self, token, position):
        return int(self.run([token]).argmax())

    def logits(self, ids):
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        return [float(x) for x in self.run(ids)]

    def start_batch(self, sequences, ids):
        """Begins `sequences` sequences with the same prompt; decode_batch() goes on with all of them at once."""
        library = self.library
        if self.batched is None:
            self.parameters.n_ctx, self.parameters.n_seq_max = 512 * sequences, sequences
            self.batched = library.llama_init_from_model(self.model, self.parameters)
        library.llama_memory_clear(library.llama_get_memory(self.batched), True)
        self.batch = library.llama_batch_init(max(sequences, len(ids)), 0, 1)
        for sequence in range(sequences):
            last = self.run_batch(ids, range(len(ids)), [sequence] * len(ids), [len(ids) - 1])
        return [last[0]] * sequences

    def decode_batch(self, tokens, position):
        count = len(tokens)
        return self.run_batch(tokens, [position] * count, range(count), range(count))

    def run_batch(self, tokens, positions, sequences, wanted):
        batch, library = self.batch, self.library
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence) in enumerate(zip(tokens, positions, sequences)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, position, 1, sequence
            batch.logits[i] = i in wanted
        if library.llama_decode(self.batched, batch):
            raise RuntimeError("llama_decode failed")
        rows = [library.llama_get_logits_ith(self.batched, i) for i in wanted]
        return [int(self.numpy.ctypeslib.as_array(row, (self.vocabulary,)).argmax()) for row in rows]


def serve(options):
    """Answers "check", "prefill RUNS TOKENS", "decode RUNS CONTEXT" and "batch RUNS" with a line of JSON: tokens a second of each run."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    if options.serve == "llama":
        peer = LlamaCpp(options.model, options.threads)
    else:
        peer = Torch(options.model, options.threads, options.serve == "compiled")
    say = lambda answer: print(json.dumps(answer), file=answers, flush=True)
    say(peer.versions())
    ids = prompt_ids(options.vocabulary, PROMPT)
    for line in sys.stdin:
        work, runs, length = (line.split() + ["0", "0"])[:3]
        length = int(length)
        if work == "check":
            say(peer.logits(ids[:START]))
            continue
        rates = []
        if work == "prefill":
            length = length or PROMPT
            prompt = prompt_ids(options.vocabulary, length)
            peer.hold(max(CONTEXT, length))
            for run in range(int(runs) + 1):  # the first warms up, and compiles; llama.cpp needs no long one for it
                start = time.perf_counter()
                peer.prefill(prompt if run or options.serve != "llama" else ids)
                if run:
                    rates.append(length / (time.perf_counter() - start))
        elif work == "batch":
            tokens, position = peer.start_batch(SEQUENCES, ids[:START]), START
            for run in range(int(runs) + 1):
                start = time.perf_counter()
                for _ in range(BATCH):
                    tokens = peer.decode_batch(tokens, position)
                    position += 1
                if run:
                    rates.append(SEQUENCES * BATCH / (time.perf_counter() - start))
        else:
            position = length or START
            peer.hold(max(CONTEXT, position + (int(runs) + 1) * BATCH))
            if position == START:
                token = peer.prefill(ids[:START])
            else:
                token = peer.fill(ids, position)
            for run in range(int(runs) + 1):  # the first warms up, and compiles
                start = time.perf_counter()
                for _ in range(BATCH):
                    token = peer.decode(token, position)
                    position += 1
                if run:
                    rates.append(BATCH / (time.perf_counter() - start))
        say(rates)


# -- the comparison --


class Server:
    def __init__(self, python, kind, model, options, vocabulary):
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OMP_PROC_BIND="true")
        command = [python, os.path.abspath(__file__), "--serve", kind, "--model", model]
        command += ["--threads", str(options.threads), "--vocabulary", str(vocabulary)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)  # fmt: skip
        self.versions = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return self.answer()


def difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) / max(map(abs, a))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model directory")
    parser.add_argument("--command", default=machine.COMMAND, help="the anyaccel command (default: %(default)s)")
    lengths = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--contexts", type=lengths, default=CONTEXTS, help="of decode, out of the default's (default: 64,4096,32768)")
    parser.add_argument("--prompts", type=lengths, default=[PROMPT, 4096], help="of prefill (default: 512,4096)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="of each in a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--llama", action="append", default=[], metavar="LABEL=PYTHON", help="another llama.cpp")
    parser.add_argument("--output", help="also write the figures to this file as JSON")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--vocabulary", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return

    unknown = [str(n) for n in options.contexts if n not in CONTEXTS]
    if unknown:
        parser.error(f"--contexts {','.join(unknown)}: `anyaccel bench decode` measures {', '.join(map(str, CONTEXTS))} only")
    with open(os.path.join(options.model, "config.json")) as file:
        vocabulary = json.load(file)["vocab_size"]
    servers, missing = {}, {}

    def start(name, python, kind, model):
        try:
            servers[name] = Server(python, kind, model, options, vocabulary)
        except (OSError, RuntimeError) as error:
            missing[name] = str(error)

    # A figure's name, which is also ours of `anyaccel bench`, the request for it, and its length.
    request = lambda work, length, usual: (work if length == usual else f"{work} {length}", work, length)
    wanted = [request("decode", n, START) for n in options.contexts] + [request("prefill", n, PROMPT) for n in options.prompts]

    runs_of = lambda length: options.runs if length <= PROMPT else 1

    def timed(what, measure):
        start = time.perf_counter()
        result = measure()
        print(f"{time.perf_counter() - start:7.1f} s: {what}", file=sys.stderr)
        return result

    def ours(work, length):
        """Returns {figure: (tokens a second, those that its ceiling allows)}: of all contexts, or of a prompt of so many tokens."""
        environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(options.threads))
        command = [options.command, "bench", work, "--model", options.model, "--json", "--seconds", "0.25"]
        command += ["--runs", str(options.runs)] if work == "decode" else ["--prompt-tokens", str(length), "--runs", str(runs_of(length))]
        run = lambda: subprocess.run(command, check=True, text=True, env=environment, stdout=subprocess.PIPE).stdout
        output = timed("anyaccel, " + (f"prefill {length}" if work == "prefill" else "decode"), run)
        results = {result["name"]: (result["value"], result["ceiling"]) for result in json.loads(output)["results"]}
        if work == "prefill":
            return {request(work, length, PROMPT)[0]: results["prefill.tokens"]}
        return {name.replace("decode.tokens", "decode"): rate for name, rate in results.items() if name.startswith("decode.tokens")}

    with tempfile.TemporaryDirectory() as folder:
        start("torch", sys.executable, "eager", options.model)
        start("torch compiled", sys.executable, "compiled", options.model)
        llamas = dict([("llama.cpp", sys.executable)] + [label.split("=", 1) for label in options.llama])
        file = os.path.join(folder, "model.gguf")
        try:
            write_gguf(options.model, file)
            for label, python in llamas.items():
                if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode:
                    missing[label] = f"{python} cannot import llama_cpp"
                else:
                    start(label, python, "llama", file)
        except ImportError as error:
            missing["llama.cpp"] = str(error)

        agreement = {}
        if "torch" in servers:
            reference = servers["torch"].ask("check")
            for label in llamas:
                if label in servers:
                    agreement[label] = difference(reference, servers[label].ask("check"))
                    if agreement[label] > AGREEMENT:
                        sys.exit(f"{label} differs from PyTorch by {agreement[label]:.3f} of the largest logit: not the same model")

        figures = {name: {"anyaccel": [], "ceiling": []} for name, _, _ in wanted}
        loads = [os.getloadavg()[0]]
        for _ in range(options.rounds):
            long_prompts = {}
            for name, server in servers.items():
                own = {}
                for figure, work, length in wanted:
                    if name.startswith("torch") and work == "decode" and length != START:
                        continue
                    measured = long_prompts if work == "prefill" and length > PROMPT else own
                    if figure not in measured:
                        measured |= ours(work, length)
                    if measured.setdefault(figure) is None:  # what is in the way, the benchmark has said
                        continue
                    # Once in a round for a long prompt, which the first of the peers asks for.
                    if measured is own or name == next(iter(servers)):
                        for key, value in zip(("anyaccel", "ceiling"), measured[figure]):
                            figures[figure][key].append(value)
                    time.sleep(0.5)  # threads that wait for work by spinning fall asleep
                    asked = f"{work} {runs_of(length) if work == 'prefill' else options.runs} {length}"
                    rates = timed(f"{name}, {figure}", lambda: server.ask(asked))
                    figures[figure].setdefault(name, []).extend(rates)
                time.sleep(0.5)
            loads.append(os.getloadavg()[0])
        for server in servers.values():
            server.process.stdin.close()
            server.process.wait()

    result = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(loads),
        "model": "bf16 Llama of %.2f GB" % (sum(e.stat().st_size for e in os.scandir(options.model)) * 1e-9),
        "threads": options.threads,
        "versions": {name: server.versions for name, server in servers.items()},
        "missing": missing,
        "logits_differ_from_torch": agreement,
        "unit": "tokens/s",
    }
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}", file=sys.stderr)
    print(f"{result['model']}, batch 1, {options.threads} threads, {options.rounds} rounds; keys and values of 16 bits\n")
    print(f"{'tokens/s':>15} {'program':>24} {'median':>9} {'ours / it':>10}")
    for figure, by in figures.items():
        if not by["anyaccel"]:  # not measured: see `missing`, or what the benchmark has said
            continue
        result[figure] = {name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
                          for name, values in by.items()}  # fmt: skip
        for name, values in result[figure].items():
            ratio = result[figure]["anyaccel"]["median"] / values["median"]
            print(f"{figure:>15} {name:>24} {values['median']:>9.2f} {ratio:>10.2f}")
    if options.output:
        with open(options.output, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
