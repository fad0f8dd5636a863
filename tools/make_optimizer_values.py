#!/usr/bin/env python3
"""Writes tests/ops/optimizer_torch_values.h: the results of PyTorch's optimizers for a few small
parameters.

usage: tools/make_optimizer_values.py > tests/ops/optimizer_torch_values.h
"""
import torch

PARAMS = [0.5, -1.25, 2.0, -0.03125, 0.75, -3.5, 0.001, 1.0]
STEPS = 3


def gradients(step):
    return torch.tensor([(((i * 7 + step * 3) % 11) - 5) * 0.0625 for i in range(len(PARAMS))])


def run(make):
    param = torch.nn.Parameter(torch.tensor(PARAMS))
    optimizer = make([param])
    for step in range(1, STEPS + 1):
        param.grad = gradients(step)
        optimizer.step()
    state = optimizer.state[param]
    return param.detach(), [state[k] for k in ("exp_avg", "exp_avg_sq", "sum") if k in state]


def emit(name, values):
    numbers = ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in values.tolist())
    print(f"inline constexpr float {name}[] = {{{numbers}}};")


print(f"// Made by tools/make_optimizer_values.py with PyTorch {torch.__version__.split('+')[0]}; do not edit.")
print("//")
print("// Three steps on eight parameters; the gradient of parameter i in step s (from 1) is ((7 i + 3 s) mod 11 - 5) / 16.")
print("#pragma once")
print()
print("namespace anyaccel::ops::torch_values {")
print()
emit("params", torch.tensor(PARAMS))
for name, make in [
    ("adam", lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)),
    ("adamw", lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)),
    ("adagrad", lambda p: torch.optim.Adagrad(p, lr=0.05, eps=1e-8, weight_decay=0.1)),
]:
    param, states = run(make)
    emit(f"{name}_params", param)
    for i, state in enumerate(states):
        emit(f"{name}_state{i}", state)
print()
print("}  // namespace anyaccel::ops::torch_values")
