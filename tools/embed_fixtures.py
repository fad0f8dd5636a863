#!/usr/bin/env python3
"""Makes tests/data/embeddings.json: the mean and the last of transformers' last hidden states, in fp32, for small models.

    pip install torch transformers
    python tools/embed_fixtures.py
"""
import json
import os

import torch
from transformers import AutoModel

data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data")
lines = []
for name in ("models/llama_gqa", "models/qwen3", "adapters/models/gpt2", "adapters/models/phi3"):
    model = AutoModel.from_pretrained(os.path.join(data, name), dtype=torch.float32).eval()
    for count in (1, 9):
        ids = [(11 * i + 5) % model.config.vocab_size for i in range(count)]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        lines.append(json.dumps({"model": name, "ids": ids, "mean": [round(x, 6) for x in states.mean(0).tolist()],
                                 "last": [round(x, 6) for x in states[-1].tolist()]}))
with open(os.path.join(data, "embeddings.json"), "w") as file:
    file.write("[\n" + ",\n".join(lines) + "\n]\n")
