#!/usr/bin/env python3
"""Records what transformers' beam search finds: writes tests/data/beam_search.json.

Needs torch and transformers 5. For each case: the model of tests/data/models, the prompt, the settings as
generation_config.json has them, and all finished answers with their scores, the best first. Cases on which fp32 and
fp64 disagree are an error: rounding would decide them.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
MAX_NEW_TOKENS = 14


def answers(model, prompt, settings):
    settings = {"max_new_tokens": MAX_NEW_TOKENS} | settings
    eos = settings.get("eos_token_id")
    pad = eos[0] if isinstance(eos, list) else eos if eos is not None else 0
    config = GenerationConfig(do_sample=False, pad_token_id=pad, num_return_sequences=settings["num_beams"], **settings)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, output_scores=True,
                             return_dict_in_generate=True)
    found = []
    for row, indices, score in zip(out.sequences, out.beam_indices, out.sequences_scores, strict=True):
        length = int((indices >= 0).sum())
        found.append({"ids": row[len(prompt):len(prompt) + length].tolist(), "score": float(score)})
    return found


def cases(expected):
    """Returns prompts and settings; ends of sequences are tokens of the answers without an end."""
    prompt, first = expected["prompt_ids"], expected["greedy_ids"]
    other, second = expected["batch"][0]["prompt_ids"], expected["batch"][0]["greedy_ids"]
    for beams in (2, 3, 5):
        yield prompt, {"num_beams": beams}
    for early in (False, True, "never"):
        for penalty in (1.0, 0.0, 2.5, -1.0):
            yield prompt, {"num_beams": 4, "early_stopping": early, "length_penalty": penalty, "eos_token_id": first[3]}
        yield other, {"num_beams": 3, "early_stopping": early, "eos_token_id": [second[2], second[6], first[2]]}
    yield other, {"num_beams": 4, "no_repeat_ngram_size": 1, "repetition_penalty": 1.3}
    yield prompt, {"num_beams": 4, "bad_words_ids": [[first[0]], [first[2], first[3]]], "sequence_bias": [[[first[5]], 3.0]]}
    yield prompt, {"num_beams": 3, "eos_token_id": first[2], "min_new_tokens": 6}
    yield prompt, {"num_beams": 3, "max_new_tokens": 1}


def main():
    torch.set_num_threads(1)  # the models are tiny
    rows = []
    for name in ("llama_gqa", "llama_dynamic", "mistral_window"):
        folder = DATA / "models" / name
        if not folder.exists():
            raise SystemExit(f"{folder} is missing")
        expected = json.loads((folder / "expected.json").read_text())
        for number, (prompt, settings) in enumerate(cases(expected)):
            if name != "llama_gqa" and number % 4 != 1:
                continue
            # New models, because those with dynamic rope keep the frequencies of the longest text so far.
            models = [AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval() for dtype in (torch.float32, torch.float64)]
            for model in models:
                model.generation_config = GenerationConfig()  # its end-of-sequence tokens would be added to the settings
                model.config.eos_token_id = None
            found, exact = (answers(model, prompt, settings) for model in models)
            if [one["ids"] for one in found] != [one["ids"] for one in exact]:
                raise SystemExit(f"{name} {settings}: rounding decides")
            assert all(abs(a["score"] - b["score"]) < 1e-5 * max(1, abs(b["score"])) for a, b in zip(found, exact, strict=True))
            rows.append({"model": name, "prompt_ids": prompt, "settings": settings, "answers": exact})
    text = ",\n".join(json.dumps(row) for row in rows)
    (DATA / "beam_search.json").write_text(f'{{"max_new_tokens": {MAX_NEW_TOKENS}, "cases": [\n{text}\n]}}\n', encoding="ascii")
    lengths = [len(one["ids"]) for row in rows for one in row["answers"]]
    print(f"beam search: {len(rows)} cases, {len(lengths)} answers of {min(lengths)} to {max(lengths)} tokens")


if __name__ == "__main__":
    main()
