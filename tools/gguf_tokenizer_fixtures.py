#!/usr/bin/env python3
"""Makes tests/data/gguf_tokenizers.json: the ids that Hugging Face tokenizers and SentencePiece
return for random texts.

    pip install tokenizers sentencepiece protobuf
    python tools/gguf_tokenizer_fixtures.py

For each name of tokenizer.ggml.pre, a tokenizer with the steps that the tokenizer.json of such models has, around the
vocabulary of one in tests/data/tokenizers; and SentencePiece's library with two models there. random_texts.py has the texts.
"""
import json
import os
import re

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from random_texts import GROUP, RANGES, TEXTS, WORDS, hashes

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LETTERS = [rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"]
TEKKEN = "|".join(LETTERS) + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
GPT4O = "|".join(part + CONTRACTIONS + "?" for part in LETTERS) + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|") + SPACES
# Maps a name to: vocabulary, patterns, whether GPT-2's pattern follows, whole words, NFC.
RULES = {
    "llama-bpe": ("llama3_style", [LLAMA3], False, True, False),
    "smaug-bpe": ("llama3_style", [LLAMA3], False, False, False),
    "qwen2": ("qwen2_style", [QWEN2], False, False, True),
    "megrez": ("qwen2_style", [QWEN2], False, False, False),
    "seed-coder": ("llama3_style", [QWEN2.replace(r"\p{L}\p{N}]+[\r\n]*", r"\p{L}\p{N}\r\n]+")], False, False, False),
    "gpt-2": ("gpt2_bytelevel", [], True, False, False),
    "smollm": ("gpt2_bytelevel", [r"\p{N}"], True, False, False),
    "tekken": ("llama3_style", [TEKKEN], False, True, False),
    "gpt-4o": ("llama3_style", [GPT4O], False, False, False),
    "deepseek-coder": ("gpt2_bytelevel",
                       [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}"], False, False, False),
    "deepseek-v3": ("gpt2_bytelevel", [r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3], False, False, False),
}

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "tests", "data")
result = {"texts": TEXTS, "group": GROUP, "ranges": RANGES, "words": WORDS, "byte_level": {}, "by_scores": {}}
for name, (vocabulary, patterns, as_gpt2, whole_words, composes) in RULES.items():
    with open(os.path.join(data, "tokenizers", vocabulary, "tokenizer.json")) as file:
        source = json.load(file)
    source["model"]["ignore_merges"] = whole_words
    source["normalizer"] = source["post_processor"] = None
    # Added tokens are as in a GGUF file: matched exactly as they are written.
    source["added_tokens"] = [dict(token, single_word=False, lstrip=False, rstrip=False, normalized=False)
                              for token in source["added_tokens"]]
    tokenizer = Tokenizer.from_str(json.dumps(source))
    if composes:
        tokenizer.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=as_gpt2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    result["byte_level"][name] = {
        "vocabulary": vocabulary,
        "hashes": hashes(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)}
for name in ("sentencepiece_bpe", "sentencepiece_user"):
    model = sentencepiece_model_pb2.ModelProto()
    with open(os.path.join(data, "tokenizers", name, "tokenizer.model"), "rb") as file:
        model.ParseFromString(file.read())
    for prefix in (True, False):
        model.normalizer_spec.add_dummy_prefix = prefix
        model.normalizer_spec.remove_extra_whitespaces = False
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        result["by_scores"][f"{name} {'with' if prefix else 'without'} prefix"] = {
            "vocabulary": name, "prefix": prefix, "hashes": hashes(processor.encode)}
text = json.dumps(result, indent=1, ensure_ascii=True)
text = re.sub(r"\n\s+(\d+),\n\s+(\d+)\n\s+\]", r"\1, \2]", text)
with open(os.path.join(data, "gguf_tokenizers.json"), "w") as file:
    file.write(text + "\n")
