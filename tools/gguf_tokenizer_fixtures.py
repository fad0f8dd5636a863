#!/usr/bin/env python3
"""Makes tests/data/gguf_tokenizers.json: the ids that Hugging Face tokenizers and SentencePiece
return for random texts.

    pip install tokenizers sentencepiece protobuf
    python tools/gguf_tokenizer_fixtures.py

For each name of tokenizer.ggml.pre, a tokenizer with the steps that the tokenizer.json of such models has, around the
vocabulary of one in tests/data/tokenizers; and SentencePiece's library with two models there. The texts are random
characters of many scripts, drawn from ranges that the file lists by a generator that the test repeats; of the ids only a hash
for each hundred texts is stored.
"""
import json
import os
import re

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

TEXTS = 2000
GROUP = 100  # texts per hash

# Each range is a first and a last character. These characters were assigned long ago, so that releases of Unicode agree
# on them.
RANGES = [(0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x30, 0x39), (0x20, 0x20), (0x20, 0x20), (0x0A, 0x0A),
          (0x09, 0x0D), (0x21, 0x2F), (0x27, 0x27), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA0, 0xA0), (0xA1, 0xFF),
          (0x100, 0x17F), (0x2B0, 0x2C1), (0x300, 0x33F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA),
          (0x621, 0x63A), (0x660, 0x669), (0x915, 0x939), (0x93E, 0x94C), (0x966, 0x96F), (0xE01, 0xE30), (0xE31, 0xE31),
          (0x1C5, 0x1C5), (0x1F88, 0x1F8F), (0x2000, 0x200A), (0x2010, 0x2027), (0x20A0, 0x20AC), (0x2160, 0x216B),
          (0x2190, 0x21FF), (0x2460, 0x2473), (0x3000, 0x3002), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5),
          (0xAC00, 0xD7A3), (0xFF01, 0xFF0F), (0xFF10, 0xFF19), (0xFF21, 0xFF3A), (0x1F600, 0x1F64F), (0x10400, 0x1044F)]
WORDS = ["'s", "'LL", "'re", " the", " in", "  ", "\n\n", "\r\n", "ing", "123", " 4567", "://", "don't", "I'M", "e\u0301"]


class Random:
    """Generates the same numbers as the class of this name in the test."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def texts():
    random = Random(20261125)
    for _ in range(TEXTS):
        text = ""
        for _ in range(random.below(24) + 1):
            if random.below(3) == 0:
                text += WORDS[random.below(len(WORDS))]
            else:
                first, last = RANGES[random.below(len(RANGES))]
                for _ in range(random.below(4) + 1):
                    text += chr(first + random.below(last - first + 1))
        yield text


def hashes(encode):
    """Returns FNV-1a of the ids as four bytes each, with ff ff ff ff after each text."""
    found, count, value = [], 0, 0xCBF29CE484222325
    for text in texts():
        for number in list(encode(text)) + [0xFFFFFFFF]:
            for byte in int(number).to_bytes(4, "little"):
                value = (value ^ byte) * 0x100000001B3 % 2**64
        count += 1
        if count % GROUP == 0:
            found.append(f"{value:016x}")
    return found


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
