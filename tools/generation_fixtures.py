"""Records what transformers' generation settings do; part of make_fixtures.py.

tests/data/generation_settings.json holds

  fields         the names of all fields of transformers' GenerationConfig
  greedy         answers of the model llama_gqa, in fp32: for each case the settings as
                 generation_config.json has them, the prompt, and the tokens that
                 model.generate() gives
  distributions  for random logits: the probabilities that transformers' processors for
                 sampling leave
  typical        the same with typical_p
"""

import json

MAX_NEW_TOKENS = 16
MIN_GAP = 0.002  # between the two best processed scores of every step, so that rounding decides nothing


def greedy_cases(expected):
    """Returns settings that are chosen by the model's answers without settings."""
    first, second = expected["greedy_ids"], expected["batch"][0]["greedy_ids"]
    prompt, other = expected["prompt_ids"], expected["batch"][0]["prompt_ids"]
    eos = {"eos_token_id": first[3]}
    yield prompt, {}
    yield prompt, {"sequence_bias": [[[first[0]], -20.0], [[first[2]], 1.5]]}
    yield prompt, {"sequence_bias": [[[first[0], first[1]], -30.0], [[first[0], 7], 30.0], [[7, 9, 11], 40.0], [[7, 9], 50.0]]}
    yield prompt, {"sequence_bias": [[[prompt[-1], 33], 60.0]]}  # the first of its tokens is the prompt's last
    yield prompt, {"bad_words_ids": [[first[1]], [first[0], 20], [first[0], first[1], first[2]]]}
    yield prompt, {"bad_words_ids": [[first[3]], [first[4], first[5]]], **eos}  # end of sequence is not a bad word
    yield other, {"bad_words_ids": [[second[0], second[1]], [second[13]]]}
    yield prompt, eos
    for least in (3, 4, 9):  # the third token is not yet kept from being the last one
        yield prompt, {"min_new_tokens": least, **eos}
    yield prompt, {"min_length": len(prompt) + 3, **eos}
    yield prompt, {"min_length": len(prompt) + 6, **eos}
    yield prompt, {"min_length": len(prompt) + 8, "min_new_tokens": 5, "eos_token_id": [first[3], first[6]]}
    yield prompt, {"suppress_tokens": [first[0], first[5], first[7]]}
    yield prompt, {"begin_suppress_tokens": [first[0], first[1]]}
    yield prompt, {"forced_eos_token_id": 19}
    yield prompt, {"forced_eos_token_id": [19, 23], "suppress_tokens": [23]}
    yield [prompt[0]], {"forced_bos_token_id": 77}
    yield [prompt[0]], {"forced_bos_token_id": 77, "begin_suppress_tokens": [5, 6, 7, 8, 9]}
    yield prompt, {"forced_bos_token_id": 77}
    for size in (2, 3):  # two tokens that are always wanted most
        yield prompt, {"no_repeat_ngram_size": size, "sequence_bias": [[[7], 50.0], [[9], 40.0]]}
    yield other, {"no_repeat_ngram_size": 1}
    yield prompt, {"repetition_penalty": 1.3, "sequence_bias": [[[first[0]], -3.0], [[prompt[3]], 6.0]]}
    yield prompt, {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "bad_words_ids": [[first[0]]], "min_new_tokens": 6,
                   "suppress_tokens": [first[2]], "begin_suppress_tokens": [first[1]], **eos}


def answer(model, prompt, settings):
    import torch
    from transformers import GenerationConfig

    config = GenerationConfig(max_new_tokens=MAX_NEW_TOKENS, do_sample=False, pad_token_id=0, **settings)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, output_scores=True,
                             return_dict_in_generate=True)
    gaps = []
    for scores in out.scores:
        best = torch.topk(scores[0], 2).values
        gaps.append(float(best[0] - best[1]))
    return out.sequences[0, len(prompt):].tolist(), min(gaps)


def distribution_cases():
    import torch

    generator = torch.Generator().manual_seed(5)
    for settings in [{"temperature": 1.0, "min_p": 0.05}, {"temperature": 0.7, "min_p": 0.2},
                     {"temperature": 1.5, "top_k": 6, "min_p": 0.1}, {"temperature": 1.0, "top_p": 0.8, "min_p": 0.02},
                     {"temperature": 1.0, "top_p": 0.6, "min_p": 0.3}, {"temperature": 2.0, "top_k": 12, "top_p": 0.9, "min_p": 0.25},
                     {"temperature": 0.8, "top_k": 5, "top_p": 0.7}, {"temperature": 1.0, "min_p": 1.0}]:
        for scale in (1.0, 3.0):
            yield settings, (torch.randn(24, generator=generator) * scale)


def typical_cases():
    import torch

    generator = torch.Generator().manual_seed(6)
    for settings in [{"temperature": 1.0, "typical_p": 0.9}, {"temperature": 0.7, "typical_p": 0.5}, {"temperature": 1.0, "typical_p": 0.02},
                     {"temperature": 1.5, "top_k": 9, "typical_p": 0.7}, {"temperature": 1.0, "top_p": 0.9, "typical_p": 0.6},
                     {"temperature": 1.2, "top_k": 15, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.8},
                     {"temperature": 1.0, "min_p": 0.1, "typical_p": 0.999}]:
        for scale in (1.0, 3.0):
            yield settings, (torch.randn(24, generator=generator) * scale)
        forbidden = torch.randn(24, generator=generator) * 2
        forbidden[::3] = -torch.inf  # as rules do
        yield settings, forbidden


def probabilities(logits, settings):
    import torch
    from transformers.generation import logits_process as lp

    scores = logits[None]
    warpers = [lp.TemperatureLogitsWarper(settings["temperature"])]
    if "top_k" in settings:
        warpers.append(lp.TopKLogitsWarper(settings["top_k"]))
    if "top_p" in settings:
        warpers.append(lp.TopPLogitsWarper(settings["top_p"]))
    if "min_p" in settings:
        warpers.append(lp.MinPLogitsWarper(settings["min_p"]))
    if "typical_p" in settings:
        warpers.append(lp.TypicalLogitsWarper(settings["typical_p"]))
    for warper in warpers:
        scores = warper(None, scores)
    return torch.softmax(scores, -1)[0].tolist()


def fields():
    """Returns the fields that a generation_config.json of this version of transformers may have."""
    from transformers import GenerationConfig

    return sorted(key for key in vars(GenerationConfig()) if not key.startswith("_") or key == "_from_model_config")


def compute(model, folder):
    expected = json.loads((folder / "expected.json").read_text())
    greedy = []
    for prompt, settings in greedy_cases(expected):
        ids, gap = answer(model, prompt, settings)
        assert gap > MIN_GAP, f"{settings}: two scores are only {gap} apart"
        greedy.append({"settings": settings, "prompt_ids": prompt, "ids": ids})
    def distributions(cases):
        # JSON has no infinity; None stands for it.
        return [{"settings": settings, "logits": [x if x > float("-inf") else None for x in logits.tolist()],
                 "probabilities": probabilities(logits, settings)} for settings, logits in cases]

    return {"max_new_tokens": MAX_NEW_TOKENS, "fields": fields(), "greedy": greedy,
            "distributions": distributions(distribution_cases()), "typical": distributions(typical_cases())}


def make(model, folder, path):
    data = compute(model, folder)
    lines = ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(case) for case in data[key]) + "\n]"
                       for key in ("greedy", "distributions", "typical"))
    head = f'"max_new_tokens": {data["max_new_tokens"]},\n"fields": {json.dumps(data["fields"])},\n'
    path.write_text("{" + head + lines + "\n}\n", encoding="ascii")
    print(f"generation settings: {len(data['greedy'])} answers, {len(data['distributions'])} distributions")


def check(model, folder, path):
    stored, found = json.loads(path.read_text()), compute(model, folder)
    assert stored["fields"] == found["fields"]
    for old, new in zip(stored["greedy"], found["greedy"], strict=True):
        assert old == new, f"{old} {new}"
    for old, new in zip(stored["distributions"] + stored["typical"], found["distributions"] + found["typical"], strict=True):
        assert old["settings"] == new["settings"]
        assert all(abs(a - b) < 1e-6 for a, b in zip(old["probabilities"], new["probabilities"], strict=True))
    print("generation settings: ok")
