#!/usr/bin/env python3
"""Makes tests/data/ranked_tokenizers.json: what tiktoken, mistral-common and transformers make of random texts.

    pip install tiktoken mistral-common tokenizers transformers
    python tools/ranked_tokenizer_fixtures.py
    python tools/ranked_tokenizer_fixtures.py --tekken FILE ANYACCEL   # compares with mistral-common on a real tekken.json

The tokens are those of tests/data/tokenizers/llama3_style, and a few that can be merged in two ways. For each family of
tiktoken's files: the pattern and special tokens that the family's own code has. For tekken.json: two generations of the
file. For vocab.json and merges.txt: directories as transformers reads them. random_texts.py has the texts.
"""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import tiktoken
import tiktoken_ext.openai_public as openai_public

from random_texts import GROUP, RANGES, TEXTS, WORDS, hashes, texts

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "tests", "data")


def bytes_of_characters():
    """GPT-2's printable characters, as in encoder.py of https://github.com/openai/gpt-2."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


CHARACTERS = bytes_of_characters()
PRINTABLE = {byte: character for character, byte in CHARACTERS.items()}
with open(os.path.join(data, "tokenizers", "llama3_style", "tokenizer.json")) as file:
    SOURCE = json.load(file)
vocabulary = sorted(SOURCE["model"]["vocab"], key=SOURCE["model"]["vocab"].get)
longer = [bytes(CHARACTERS[c] for c in token) for token in vocabulary if len(token) > 1]
# "zzz" is "z" and "zz" or "zz" and "z"; which of them merges shows in runs of z.
ranks = [bytes([byte]) for byte in range(256)] + longer + [b"zz", b"zzz", b"zzzzz", b"aba", b"ababa"]
ranks = list(dict.fromkeys(ranks))
RANKS = {token: rank for rank, token in enumerate(ranks)}
COUNT = len(ranks)
# Besides the random ones.
TEXTS_OF_TIES = ["z" * length for length in range(1, 24)] + ["ab" * length + "a" * (length % 3) for length in range(1, 16)]


def openai(name):
    """The family's pattern and special tokens; their ids are moved behind our ranks, which are fewer."""
    first = {"cl100k_base": 100256, "o200k_base": 199998, "r50k_base": 50256}[name]
    real = openai_public.load_tiktoken_bpe
    openai_public.load_tiktoken_bpe = lambda *arguments, **named: {}
    family = getattr(openai_public, name)()
    openai_public.load_tiktoken_bpe = real
    return family["pat_str"], {token: number - first + COUNT for token, number in family["special_tokens"].items()}


WORDS_OF_QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL_OF_QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
WORDS_OF_LLAMA3 = WORDS_OF_QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
SPECIAL_OF_LLAMA3 = (["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)] +
                     ["<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"] +
                     [f"<|reserved_special_token_{i}|>" for i in range(5, 251)])


def numbered(special):
    return {token: COUNT + i for i, token in enumerate(special)}


def tiktoken_families():
    """Name of the file, other files, pattern, special tokens, what comes before a text, NFC."""
    yield "qwen.tiktoken", {}, WORDS_OF_QWEN, numbered(SPECIAL_OF_QWEN), [], True
    for others in ({}, {"config.json": {"model_type": "llama"}}):
        special = numbered(SPECIAL_OF_LLAMA3)
        yield "tokenizer.model", others, WORDS_OF_LLAMA3, special, [special["<|begin_of_text|>"]], False
    for name in ("cl100k_base", "o200k_base", "r50k_base"):
        pattern, special = openai(name)
        yield name + ".tiktoken", {}, pattern, special, [], False


def results(encode, special):
    """`special` are texts with special tokens, whose ids are stored in full like those of the ties."""
    return {"hashes": hashes(encode), "cases": [[text, encode(text)] for text in TEXTS_OF_TIES + special]}


def of_tiktoken():
    for name, others, pattern, special, before, composes in tiktoken_families():
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=RANKS, special_tokens=special)

        def encode(text):
            text = unicodedata.normalize("NFC", text) if composes else text
            return before + encoding.encode(text, allowed_special="all")

        names = list(special)
        shown = [f"a {names[0]} b{names[-1]}\n\n{names[len(names) // 2]}{names[0]}"]
        yield {"file": name, "others": others, "size": max(special.values()) + 1, **results(encode, shown)}


def tekken(version, own_special):
    vocabulary = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
                  for rank, token in enumerate(ranks)]
    pattern, _ = openai("o200k_base")
    for contraction in ("(?i:'s|'t|'re|'ve|'m|'ll|'d)?",):
        pattern = pattern.replace(contraction, "")
    file = {"config": {"pattern": pattern.replace(r"\p{N}{1,3}", r"\p{N}"), "num_vocab_tokens": COUNT,
                       "default_vocab_size": COUNT + 30 - 7, "default_num_special_tokens": 30, "version": version},
            "vocab": vocabulary}
    if own_special:
        file["special_tokens"] = [{"rank": i, "token_str": token, "is_control": i != 3}
                                  for i, token in enumerate(["<unk>", "<s>", "</s>", "[THINK]", "[INST]"])]
    return file


def of_mistral():
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    for version, own_special in (("v3", False), ("v11", True)):
        file = tekken(version, own_special)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tekken.json")
            with open(path, "w") as out:
                json.dump(file, out)
            tokenizer = Tekkenizer.from_file(path)
        del file["vocab"]  # the test makes it from the tokens
        yield {"file": "tekken.json", "content": file, "size": tokenizer.n_words,
               **results(lambda text: tokenizer.encode(text, bos=True, eos=False), [])}


def directories():
    words = [token for token in SOURCE["model"]["vocab"]]
    count = len(words)
    yield {"config.json": {"model_type": "gpt2"}}
    yield {"config.json": {"model_type": "gpt2"},
           "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "bos_token": "<s>"},
           "special_tokens_map.json": {"eos_token": "<end>"},
           "added_tokens.json": {"<s>": count, "<end>": count + 1, "plain": count + 2}}
    yield {"config.json": {"model_type": "qwen2"},
           "tokenizer_config.json": {
               "tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
               "added_tokens_decoder": {
                   str(count + i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                                    "single_word": False, "special": True}
                   for i, token in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])}}}


def of_transformers():
    from transformers import AutoTokenizer

    for others in directories():
        folder = tempfile.mkdtemp()
        for name, content in {**others, "vocab.json": SOURCE["model"]["vocab"]}.items():
            with open(os.path.join(folder, name), "w") as out:
                json.dump(content, out)
        with open(os.path.join(folder, "merges.txt"), "w") as out:
            out.write("#version: 0.2\n" + "".join(f"{' '.join(m) if isinstance(m, list) else m}\n" for m in SOURCE["model"]["merges"]))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        shutil.rmtree(folder)
        special = ["a <s> b<end>plain plains<|im_start|>user\n<|im_end|><|endoftext|>"]
        yield {"file": "vocab.json", "others": others, "class": type(tokenizer).__name__,
               **results(lambda text: tokenizer(text)["input_ids"], special)}


def compare_tekken(path, anyaccel):
    """A tekken.json of a real size: the first texts through the command, against mistral-common."""
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(path)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, os.path.join(folder, "tekken.json"))
        found = expected = 0
        for text in list(texts())[:300]:
            with open(os.path.join(folder, "text"), "w", newline="") as out:
                out.write(text)
            output = subprocess.run([anyaccel, "tokenize", "--model", folder, "--ids", os.path.join(folder, "text")],
                                    capture_output=True, text=True, check=True).stdout
            expected += 1
            found += [int(i) for i in output.split()] == tokenizer.encode(text, bos=True, eos=False)
    print(f"{found} of {expected} texts have the same ids")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--tekken":
        return compare_tekken(sys.argv[2], sys.argv[3])
    head = {"texts": TEXTS, "group": GROUP, "ranges": RANGES, "words": WORDS,
            "ranks": [base64.b64encode(token).decode() for token in ranks]}
    lines = [json.dumps(entry) for entry in [*of_tiktoken(), *of_mistral(), *of_transformers()]]
    with open(os.path.join(data, "ranked_tokenizers.json"), "w") as out:
        out.write(json.dumps(head)[:-1] + ',\n"tokenizers": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
