"""PyTorch doing the work of `anyaccel bench` on a GPU: one line of JSON a figure, under the same names.

    python3 benchmarks/peers/gpu.py copy product attention decode-1b decode-8b prefill-8b adam

copy, product and attention are timed over as many calls as take 20 ms, as `anyaccel bench` does, since a single call and
waiting for it are a tenth to a third of a figure. decode: one sequence of a Llama of random bf16 weights with a static cache, the step compiled by torch.compile with CUDA
graphs ("reduce-overhead"), greedy, the token read back each step. prefill: the same model's prompt, compiled, scaled dot
product attention by PyTorch's choice. `ratio` is the figure over the ceiling that this process measured: the device to
device copy, or a product of two bf16 matrices of 8192 x 8192. Exit code 77 without PyTorch or a device.
"""
import json
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

# hidden, layers, heads, kv heads, head size, intermediate, vocabulary, rope theta: as `anyaccel make-model` knows them.
SHAPES = {"1b": (2048, 22, 32, 4, 64, 5632, 32000, 10000.0), "8b": (4096, 32, 32, 8, 128, 14336, 128256, 500000.0)}
DEVICE = "cuda"
CEILINGS = {}


def seconds(body, runs=5, warm=2, least=0.0):
    """The median of `runs` times of a call, each among as many calls as take `least` seconds, which are waited for once."""
    def timed(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            body()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    for _ in range(warm):
        body()
    times = [timed(min(1000, max(1, int(least / timed(1)))) if least else 1) for _ in range(runs)]
    return sorted(times)[len(times) // 2]


MANY = 0.02  # as seconds_a_call() of `anyaccel bench` has it


def show(name, value, unit, what, ceiling=None):
    line = {"name": name, "value": value, "unit": unit, "what": what}
    if ceiling:
        line["ceiling"], line["ratio"] = ceiling, value / ceiling
    print(json.dumps(line), flush=True)


def uniform(*shape, dtype=torch.bfloat16, scale=1.0):
    return ((torch.rand(*shape, device=DEVICE, dtype=torch.float32) * 2 - 1) * scale).to(dtype)


def copy_ceiling():
    if "copy" not in CEILINGS:
        source = uniform(1 << 28, dtype=torch.float32)
        target = torch.empty_like(source)
        CEILINGS["copy"] = 2e-9 * source.nbytes / seconds(lambda: target.copy_(source), least=MANY)
    return CEILINGS["copy"]


def product_ceiling():
    if "product" not in CEILINGS:
        a, b = uniform(8192, 8192), uniform(8192, 8192)
        CEILINGS["product"] = 2e-9 * 8192**3 / seconds(lambda: a @ b, runs=10)
    return CEILINGS["product"]


class Llama(torch.nn.Module):
    def __init__(self, shape, context):
        super().__init__()
        hidden, layers, self.heads, self.kv_heads, self.size, inner, vocabulary, theta = shape
        weight = lambda rows, columns: torch.nn.Parameter(uniform(rows, columns, scale=0.02 * 3**0.5), requires_grad=False)
        self.embedding = weight(vocabulary, hidden)
        self.head = weight(vocabulary, hidden)
        self.qkv = torch.nn.ParameterList(weight((self.heads + 2 * self.kv_heads) * self.size, hidden) for _ in range(layers))
        self.out = torch.nn.ParameterList(weight(hidden, self.heads * self.size) for _ in range(layers))
        self.gate_up = torch.nn.ParameterList(weight(2 * inner, hidden) for _ in range(layers))
        self.down = torch.nn.ParameterList(weight(hidden, inner) for _ in range(layers))
        ones = lambda: torch.nn.Parameter(torch.ones(hidden, device=DEVICE, dtype=torch.bfloat16), requires_grad=False)
        self.norms = torch.nn.ParameterList(ones() for _ in range(2 * layers + 1))
        self.theta, self.slots = theta, torch.arange(0)
        self.make_cache(context)

    def make_cache(self, context):
        """Makes caches of `context` slots, unless that is what they have."""
        if len(self.slots) == context:
            return
        cache = lambda: torch.zeros(1, self.kv_heads, context, self.size, device=DEVICE, dtype=torch.bfloat16)
        self.keys, self.values = [cache() for _ in self.qkv], [cache() for _ in self.qkv]
        frequency = self.theta ** (-torch.arange(0, self.size, 2, device=DEVICE).float() / self.size)
        angle = torch.outer(torch.arange(context, device=DEVICE).float(), frequency)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.slots = torch.arange(context, device=DEVICE)

    def norm(self, x, i):
        return F.rms_norm(x, (x.shape[-1],), self.norms[i], 1e-5)

    def rotate(self, x, positions):
        half = self.size // 2
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        a, b = x[..., :half].float(), x[..., half:].float()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def forward(self, ids, positions, prompt: bool):
        x = self.embedding[ids]
        tokens = ids.shape[0]
        for i in range(len(self.qkv)):
            q, k, v = F.linear(self.norm(x, 2 * i), self.qkv[i]).view(tokens, -1, self.size).split(
                (self.heads, self.kv_heads, self.kv_heads), 1)
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            self.keys[i][0].index_copy_(1, positions, k.transpose(0, 1))
            self.values[i][0].index_copy_(1, positions, v.transpose(0, 1))
            if prompt:
                o = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k.transpose(0, 1)[None],
                                                   v.transpose(0, 1)[None], is_causal=True, enable_gqa=True)
            else:
                mask = (self.slots[None] <= positions[:, None])[None, None]
                o = F.scaled_dot_product_attention(q.transpose(0, 1)[None], self.keys[i], self.values[i], attn_mask=mask,
                                                   enable_gqa=True)
            x = x + F.linear(o[0].transpose(0, 1).reshape(tokens, -1), self.out[i])
            gate, up = F.linear(self.norm(x, 2 * i + 1), self.gate_up[i]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, self.down[i])
        logits = F.linear(self.norm(x[-1:], 2 * len(self.qkv)), self.head)
        return logits.argmax(-1)

    def bytes_per_token(self, position):
        weights = sum(p.nbytes for p in self.parameters()) - self.embedding.nbytes + self.embedding.nbytes // self.embedding.shape[0]
        return weights + 2 * len(self.keys) * position * self.kv_heads * self.size * 2


def decode(name):
    model = Llama(SHAPES[name], 512)
    step = torch.compile(lambda ids, positions: model(ids, positions, False), mode="reduce-overhead", fullgraph=True)
    ids = torch.randint(0, SHAPES[name][6], (64,), device=DEVICE)
    with torch.no_grad():
        token = model(ids, torch.arange(64, device=DEVICE), True)
        position = 64

        def tokens(count):
            nonlocal token, position
            for _ in range(count):
                token = step(token.clone(), torch.tensor([position], device=DEVICE))
                token.tolist()
                position += 1

        tokens(6)
        rates, bandwidths = [], []
        for _ in range(5):
            start, first = time.perf_counter(), position
            tokens(16)
            spent = time.perf_counter() - start
            rates.append(16 / spent)
            bandwidths.append(1e-9 * sum(model.bytes_per_token(p) for p in range(first, position)) / spent)
    show(f"decode.bandwidth {name}", sorted(bandwidths)[2], "GB/s", "torch.compile, CUDA graphs", copy_ceiling())
    show(f"decode.tokens {name}", sorted(rates)[2], "tok/s", "torch.compile, CUDA graphs")


def prefill(name, length=2048):
    model = Llama(SHAPES[name], length)
    ids, positions = torch.randint(0, SHAPES[name][6], (length,), device=DEVICE), torch.arange(length, device=DEVICE)
    run = torch.compile(lambda a, b: model(a, b, True), fullgraph=True)
    with torch.no_grad():
        spent = seconds(lambda: run(ids, positions))
    hidden, layers, heads, kv_heads, size, inner, vocabulary, _ = SHAPES[name]
    matrices = layers * (2 * hidden * heads * size + 2 * hidden * kv_heads * size + 3 * hidden * inner)
    operations = 2 * length * matrices + 4 * heads * size * length * (length + 1) / 2 * layers + 2 * vocabulary * hidden
    show(f"prefill.flops {name}", 1e-9 * operations / spent, "GFLOP/s", "torch.compile", product_ceiling())
    show(f"prefill.tokens {name}", length / spent, "tok/s", "torch.compile")


def attention():
    for length in (2048, 8192):
        q = uniform(1, 32, length, 128)
        k, v = uniform(1, 8, length, 128), uniform(1, 8, length, 128)
        best, name = None, ""
        for backend in torch.nn.attention.SDPBackend.__members__.values():
            try:
                with torch.nn.attention.sdpa_kernel(backend):
                    spent = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), least=MANY)
            except (RuntimeError, ValueError):
                continue
            if best is None or spent < best:
                best, name = spent, str(backend).split(".")[-1]
        if best:
            show(f"attention.flops {length}", 4e-9 * 32 * 128 * length * (length + 1) / 2 / best, "GFLOP/s",
                 f"scaled_dot_product_attention, {name}", product_ceiling())


def product():
    show("product.large", product_ceiling(), "GFLOP/s", "bf16, 8192 x 8192 x 8192")
    for rows, outputs, inputs in ((2048, 6144, 4096), (2048, 4096, 4096), (2048, 28672, 4096), (2048, 4096, 14336)):
        x, w = uniform(rows, inputs), uniform(outputs, inputs)
        spent = seconds(lambda: F.linear(x, w), runs=10, least=MANY)
        show(f"product.{rows}x{outputs}x{inputs}", 2e-9 * rows * outputs * inputs / spent, "GFLOP/s", "F.linear, bf16",
             product_ceiling())


def adam():
    parameter = torch.nn.Parameter(uniform(1 << 28, dtype=torch.float32))
    parameter.grad = uniform(1 << 28, dtype=torch.float32)
    optimizer = torch.optim.AdamW([parameter], lr=1e-6, weight_decay=0.01, fused=True)
    show("adam.bandwidth", 28e-9 * parameter.numel() / seconds(optimizer.step), "GB/s", "torch.optim.AdamW, fused",
         copy_ceiling())
    many = [torch.nn.Parameter(uniform(4096, dtype=torch.float32)) for _ in range(1000)]
    for tensor in many:
        tensor.grad = uniform(4096, dtype=torch.float32)
    optimizer = torch.optim.AdamW(many, lr=1e-6, weight_decay=0.01, fused=True)
    show("adam.small", 1000 * 4096 / seconds(optimizer.step, runs=20), "elem/s", "torch.optim.AdamW, fused")


WORK = {"copy": lambda: show("copy.copy", copy_ceiling(), "GB/s", "Tensor.copy_"), "product": product,
        "attention": attention, "decode-1b": lambda: decode("1b"), "decode-8b": lambda: decode("8b"),
        "prefill-8b": lambda: prefill("8b"), "adam": adam}


def main():
    if not torch.cuda.is_available():
        print("PyTorch finds no CUDA device")
        sys.exit(77)
    torch.manual_seed(1)
    failed = False
    for name in sys.argv[1:] or WORK:
        try:
            WORK[name]()
        except Exception as error:  # one figure must not take the others with it
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed = True
        torch.cuda.empty_cache()
    sys.exit(failed)


if __name__ == "__main__":
    main()
