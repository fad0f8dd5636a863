#!/usr/bin/env python3
"""Makes tests/data/perplexity.json: the perplexity of a text under the bundled model, as transformers computes it.

    pip install torch transformers
    python tools/perplexity_fixtures.py

The loop is that of transformers' documentation ("Perplexity of fixed-length models"), with the mean over tokens.
"""
import json
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

here = os.path.dirname(os.path.abspath(__file__))
stories = os.path.join(here, "..", "models", "stories")
TEXT = ("Once upon a time, there was a little cat named Tom. Tom liked to play in the garden. One day, he saw a big red ball "
        "under a tree. He wanted to play with it, but the ball was too heavy. A kind dog came and asked what was wrong. "
        "\"I cannot move the ball,\" said Tom. They pushed together, and the ball rolled down the hill. They laughed and ran "
        "after it. When the sun went down, they walked home. Quantum entanglement, however, 12345 remained mysterious. "
        "From that day on, they were friends and played in the garden every morning.")
tokenizer = AutoTokenizer.from_pretrained(stories)
model = AutoModelForCausalLM.from_pretrained(stories, dtype=torch.float32).eval()
ids = tokenizer(TEXT, return_tensors="pt").input_ids
runs = []
for window, stride in ((512, 256), (64, 32), (64, 63), (40, 9), (33, 20)):
    total, count, previous = 0.0, 0, 0
    for begin in range(0, ids.size(1), stride):
        end = min(begin + window, ids.size(1))
        part = ids[:, begin:end]
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(part).logits[0, :-1].double(), part[0, 1:], reduction="none")
        new = end - max(previous, 1) if begin == 0 else end - previous
        losses = losses[-new:]
        total += losses.sum().item()
        count += new
        previous = end
        if end == ids.size(1):
            break
    runs.append({"window": window, "stride": stride, "tokens": count, "mean_loss": total / count})
with open(os.path.join(here, "..", "tests", "data", "perplexity.json"), "w") as file:
    json.dump({"text": TEXT, "ids": ids[0].tolist(), "runs": runs}, file)
    file.write("\n")
