#!/usr/bin/env python3
"""Writes tests/data/training: a tiny Llama of transformers, and its losses, gradients and steps of AdamW, computed in float64.

usage: tools/make_training_values.py

Needs torch, transformers and safetensors; for making data only. model.safetensors holds the weights; expected.safetensors the ids
[sequences, length + 1], the losses of all tokens, the gradient of their mean by each weight ("grad." and its name), and the losses
of steps with AdamW and gradients clipped at 0.5 ("step_losses"), of which the first belongs to the initial weights.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCES, LENGTH, STEPS = 2, 70, 6
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/training"

torch.manual_seed(11)
config = LlamaConfig(
    vocab_size=23, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=4, hidden_act="silu", max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=10000.0,
    attention_bias=False, mlp_bias=False)
config._attn_implementation = "eager"
model = LlamaForCausalLM(config).double()
with torch.no_grad():
    for name, p in model.named_parameters():
        # The values are rounded to float32, so that the stored weights are exact.
        values = 1 + 0.2 * torch.randn_like(p) if p.dim() == 1 else 0.3 * torch.randn_like(p)
        p.copy_(values.float().double())
ids = torch.randint(0, 23, (SEQUENCES, LENGTH + 1))
weights = {name: p.detach().float().contiguous().clone() for name, p in model.named_parameters()}


def losses():
    scores = model(input_ids=ids[:, :-1]).logits
    return F.cross_entropy(scores.reshape(-1, 23), ids[:, 1:].reshape(-1), reduction="none")


of_tokens = losses()
of_tokens.mean().backward()
expected = {"ids": ids.int(), "losses": of_tokens.detach().float()}
for name, p in model.named_parameters():
    expected["grad." + name] = p.grad.float().contiguous().clone()

matrices = [p for p in model.parameters() if p.dim() > 1]
vectors = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], lr=0.01, betas=(0.9, 0.95), eps=1e-8)
steps = []
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = losses().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    steps.append(loss.item())
expected["step_losses"] = torch.tensor(steps)

FOLDER.mkdir(parents=True, exist_ok=True)
save_file(weights, FOLDER / "model.safetensors", metadata={"format": "pt"})
save_file(expected, FOLDER / "expected.safetensors")
