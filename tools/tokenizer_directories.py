"""Makes model directories whose special tokens are in several files, and records the results of transformers' AutoTokenizer.

Part of make_fixtures.py, which calls make() and check(). For each entry of DIRECTORIES one file
tests/data/tokenizer_directories/<name>.json is written: the small files of the directory as they are, the names of the
shared ones (tests/data/tokenizer_directories/shared: trained here, on the text of make_fixtures.py), the class that
AutoTokenizer chose, and many texts and token lists with what that class makes of them. The directory has a config.json
with nothing but a model_type, because the choice of the class depends on it.
"""

import json
import random
import shutil
import tempfile
from pathlib import Path


def token(content, special=True, **options):
    """Returns an entry of added_tokens_decoder with all members, as transformers writes it."""
    entry = {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
             "special": special}
    entry.update(options)
    return entry


def chat_tokens(first, *more):
    """Returns the usual tokens of a ChatML model with ids from `first`."""
    contents = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    entries = [token(c) for c in contents] + [token("<tool_call>", special=False), token("<think>", special=False)]
    return {str(first + i): entry for i, entry in enumerate(entries + list(more))}


# Returns tokens with every rule for the text around them.
def odd_tokens():
    return [token("<left>", lstrip=True), token("<right>", rstrip=True), token("<both>", lstrip=True, rstrip=True),
            token("word", special=False, single_word=True), token("<norm>", special=False, normalized=True),
            token("d\u00e9j\u00e0", special=False, normalized=True), token("<special norm>", normalized=True)]


BYTES = 330  # tokens of shared/bytelevel.json: 256 bytes and 74 merges
PIECES = 500  # pieces of shared/llama.model
LLAMA_FIRST = {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}


def numbered(first, entries):
    return {str(first + i): entry for i, entry in enumerate(entries)}


DIRECTORIES = {
    # ChatML tokens only in tokenizer_config.json.
    "qwen2_config": {
        "model_type": "qwen2", "tokenizer.json": "bytelevel.json",
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "bos_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "added_tokens_decoder": chat_tokens(BYTES)}},
    # ... only in added_tokens.json and special_tokens_map.json, as older versions wrote them.
    "qwen2_added_tokens": {
        "model_type": "qwen2", "tokenizer.json": "bytelevel.json",
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True},
        "added_tokens.json": {"<|im_end|>": BYTES + 2, "<|endoftext|>": BYTES, "<|im_start|>": BYTES + 1,
                              "plain": BYTES + 3},
        "special_tokens_map.json": {"additional_special_tokens": ["<|im_start|>"],
                                    "eos_token": {"content": "<|im_end|>", "lstrip": False, "normalized": False,
                                                  "rstrip": False, "single_word": False},
                                    "pad_token": "<|endoftext|>"}},
    # Without a class, that of the model's family is used.
    "qwen3_no_class": {
        "model_type": "qwen3", "tokenizer.json": "bytelevel_tokens.json",
        "tokenizer_config.json": {"eos_token": "<|im_end|>"}},
    # The generic class takes the pipeline of tokenizer.json and adds to it.
    "qwen3_generic": {
        "model_type": "qwen3", "tokenizer.json": "bytelevel.json",
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "image_token": "<image>", "extra_special_tokens": ["<extra>", "<tool_call>"],
            "added_tokens_decoder": chat_tokens(BYTES, *odd_tokens())}},
    # Both files have the tokens, with different rules: those of tokenizer_config.json count.
    "llama_generic_rules": {
        "model_type": "llama", "tokenizer.json": "bytelevel_tokens.json",
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "add_eos_token": True,
            "bos_token": "<|begin|>", "eos_token": "<|im_end|>",
            "added_tokens_decoder": {
                str(BYTES): token("<|begin|>", lstrip=True), str(BYTES + 1): token("<|endoftext|>", special=False),
                str(BYTES + 3): token("<|im_end|>", special=False, normalized=True, rstrip=True)}}},
    # A byte-level tokenizer with the class name LlamaTokenizerFast, as in Llama 3 and DeepSeek.
    "llama_bytelevel": {
        "model_type": "llama", "tokenizer.json": "bytelevel_tokens.json",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False, "legacy": True,
            "bos_token": {"__type": "AddedToken", "content": "<|begin|>", "lstrip": False, "normalized": True,
                          "rstrip": False, "single_word": False},
            "eos_token": "<|im_end|>", "sep_token": "<sep>"}},
    # The tokenizer.json of Llama 2 (Prepend and Replace), which LlamaTokenizer replaces with its own pipeline.
    "llama_json": {
        "model_type": "llama", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": False, "add_eos_token": True,
            "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None,
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES)}}},
    "llama_json_legacy": {
        "model_type": "llama", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast", "legacy": True},
        "added_tokens.json": {"<|im_start|>": PIECES, "<|im_end|>": PIECES + 1},
        "special_tokens_map.json": {"eos_token": "<|im_end|>", "bos_token": "<s>"}},
    "llama_json_generic": {
        "model_type": "llama", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>",
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES, *odd_tokens())}}},
    "mistral_json": {
        "model_type": "mistral", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True},
        "added_tokens.json": {"[INST]": PIECES, "[/INST]": PIECES + 1}},
    # transformers ignores the class that these files name, since published files of the family name a wrong one.
    "phi3_json": {
        "model_type": "phi3", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": False, "eos_token": "<|im_end|>",
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES, *odd_tokens())}}},
    "granite_json": {
        "model_type": "granite", "tokenizer.json": "gpt2.json",
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>",
                                  "eos_token": "<|endoftext|>"}},
    # Without a class, that of the model's family is used.
    "starcoder2_no_class": {
        "model_type": "starcoder2", "tokenizer.json": "gpt2.json",
        "tokenizer_config.json": {"eos_token": "<|endoftext|>"}},
    # A tokenizer.model with each way to name tokens.
    "llama_model": {
        "model_type": "llama", "tokenizer.model": "llama.model",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True, "add_eos_token": False,
            "bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>",
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES, *odd_tokens())}}},
    "llama_model_legacy": {
        "model_type": "llama", "tokenizer.model": "llama.model",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": True, "add_eos_token": True,
            "additional_special_tokens": [],
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES, *odd_tokens())}}},
    "llama_model_added_tokens": {
        "model_type": "llama", "tokenizer.model": "llama.model",
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast", "legacy": None, "add_bos_token": True},
        "added_tokens.json": {"<|im_end|>": PIECES + 1, "<|im_start|>": PIECES, "ing": 277, "[PAD]": PIECES + 2},
        "special_tokens_map.json": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"],
                                    "pad_token": "[PAD]"}},
    "llama_model_no_prefix": {
        "model_type": "llama", "tokenizer.model": "llama.model",
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer", "add_prefix_space": False, "split_special_tokens": True,
            "added_tokens_decoder": {**LLAMA_FIRST, **chat_tokens(PIECES)}}},
    "gpt2": {
        "model_type": "llama", "tokenizer.json": "gpt2.json",
        "tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": True,
                                  "pad_token": "<pad>", "mask_token": "<mask>"}},
    # Classes whose steps are not those of the file: it prepends a space, or does not normalize or split digits.
    "gemma_other_steps": {
        "model_type": "gemma2", "tokenizer.json": "llama.json",
        "tokenizer_config.json": {
            "tokenizer_class": "GemmaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>",
            "added_tokens_decoder": {**LLAMA_FIRST, **numbered(PIECES, [token("<start_of_turn>"), *odd_tokens()])}}},
    "gpt_neox_other_steps": {
        "model_type": "gpt_neox", "tokenizer.json": "gpt2.json",
        "tokenizer_config.json": {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False}},
    "cohere_other_steps": {
        "model_type": "cohere2", "tokenizer.json": "bytelevel.json",
        "tokenizer_config.json": {"tokenizer_class": "CohereTokenizerFast", "add_prefix_space": True,
                                  "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_RESPONSE|>", "sep_token": None}},
    "codegen_class": {
        "model_type": "phi", "tokenizer.json": "gpt2.json", "tokenizer_config.json": {"tokenizer_class": "CodeGenTokenizer"}},
}


def train_shared(folder, fixtures):
    """Writes the shared tokenizer files; `fixtures` is the module make_fixtures."""
    import io

    import sentencepiece as spm
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(fixtures.QWEN2_REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocab, merges = fixtures.train_bytelevel(pre, normalizers.NFC(), BYTES)
    assert len(vocab) == BYTES

    def bytelevel():
        tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tok.normalizer = normalizers.NFC()
        tok.pre_tokenizer = pre
        tok.decoder = decoders.ByteLevel()
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
        return tok

    bytelevel().save(str(folder / "bytelevel.json"), pretty=False)
    tok = bytelevel()
    tok.add_special_tokens([AddedToken(t, normalized=False)
                            for t in ["<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tok.add_tokens([AddedToken("<plain>", normalized=True), AddedToken("<strip>", lstrip=True, rstrip=True)])
    tok.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", tok.token_to_id("<|begin|>"))])
    tok.save(str(folder / "bytelevel_tokens.json"), pretty=False)
    gpt2 = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)  # the class has its own setting
    gpt2.decoder = decoders.ByteLevel()
    gpt2.add_special_tokens(["<|endoftext|>"])
    gpt2.save(str(folder / "gpt2.json"), pretty=False)

    lines = [line for text in fixtures.training_lines() for line in text.replace("\r", "").split("\n") if line]
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=PIECES, byte_fallback=True,
        normalization_rule_name="identity", character_coverage=0.98, split_digits=True, unk_id=0, bos_id=1, eos_id=2,
        pad_id=-1, num_threads=1, minloglevel=2, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        user_defined_symbols=["<code>"], control_symbols=["<ctrl>"])
    (folder / "llama.model").write_bytes(out.getvalue())
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="unigram", vocab_size=260, character_coverage=0.98,
        normalization_rule_name="identity",
        num_threads=1, minloglevel=2, hard_vocab_limit=False)
    (folder / "unigram.model").write_bytes(out.getvalue())

    # The pieces of the same model as a tokenizer.json in the form that Llama 2's has.
    processor = spm.SentencePieceProcessor(model_file=str(folder / "llama.model"))
    pieces = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    tok = Tokenizer(models.BPE(vocab=pieces, merges=merges_of(pieces), unk_token="<unk>", fuse_unk=True,
                               byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ["<unk>", "<s>", "</s>"]])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                       special_tokens=[("<s>", 1)])
    tok.save(str(folder / "llama.json"), pretty=False)
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -1.5)], unk_id=0, byte_fallback=False))
    unigram.save(str(folder / "unigram.json"), pretty=False)


def merges_of(pieces):
    """Returns all ways to combine two pieces into a third, earlier pieces first."""
    merges = []
    for piece, index in pieces.items():
        for cut in range(1, len(piece)):
            if piece[:cut] in pieces and piece[cut:] in pieces:
                merges.append((index, cut, piece[:cut], piece[cut:]))
    return [(left, right) for _, _, left, right in sorted(merges)]


def open_directory(spec, shared, folder):
    from transformers import AutoTokenizer

    (folder / "config.json").write_text(json.dumps({"model_type": spec["model_type"]}))
    for name, value in spec.items():
        if name == "model_type":
            continue
        if isinstance(value, str):
            shutil.copyfile(shared / value, folder / name)
        else:
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


WORDS = ["Hello", "the", "a", "is", "word", "words", "sword", "42", "don't", "\u4f60\u597d", "caf\u00e9", "e\u0301",
         "de\u0301ja\u0300", "d\u00e9j\u00e0", "\U0001f600", "x=1;", "\u2581", "na\u00efve", "<|im_", "im_end|>", "<0x41>",
         "user", "system", "\u0000", "\u00a0"]
GAPS = ["", "", " ", " ", "  ", "\n", "\n\n", "\t", " \n", "\u3000", "\r\n"]


def texts_for(tok):
    """Returns texts with the tokens in many places, then random mixtures of tokens, words and white space."""
    added = [str(t) for _, t in sorted(tok.added_tokens_decoder.items())]
    named = [t for t in ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"] if t not in added]
    texts = ["", " ", "  ", "a", " a", "  a ", "Hello, world!", "\n", "one\ntwo\n"]
    if tok.bos_token:
        texts += [f"{tok.bos_token}Hello", f"{tok.bos_token} Hello", f" {tok.bos_token}Hello"]
    texts += ["<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nWhat's 6 x 7?<|im_end|>\n"
              "<|im_start|>assistant\n", "Hello<|endoftext|>the end", "<s>[INST] Hi [/INST] Hello </s><s>[INST] x [/INST]"]
    for t in added[:24]:
        texts += [f"a {t} b", f"a{t}b", f"{t}{t} {t.upper()}"]
    rng = random.Random(11)
    for _ in range(40):
        text = ""
        for _ in range(rng.randrange(1, 9)):
            text += rng.choice([rng.choice(added + named), rng.choice(WORDS)]) + rng.choice(GAPS)
        texts.append(rng.choice(GAPS) + text)
    return list(dict.fromkeys(texts))


def run(tok, text):
    ids = tok(text)["input_ids"]
    return {"text": text, "ids": ids, "ids_no_special": tok(text, add_special_tokens=False)["input_ids"],
            "decoded": tok.decode(ids, skip_special_tokens=True), "decoded_all": tok.decode(ids)}


def compute(spec, shared):
    with tempfile.TemporaryDirectory() as temporary:
        tok = open_directory(spec, shared, Path(temporary))
    # transformers gives a new token the next free id, whatever the files say; these directories avoid that.
    declared = {t["content"]: int(i) for i, t in
                spec.get("tokenizer_config.json", {}).get("added_tokens_decoder", {}).items()}
    declared.update(spec.get("added_tokens.json", {}))
    assert all(tok.convert_tokens_to_ids(t) == i for t, i in declared.items()), declared
    rng = random.Random(5)
    size = len(tok)
    added = sorted(tok.added_tokens_decoder)
    lists = [[rng.choice([rng.randrange(size), rng.choice(added)]) for _ in range(rng.randrange(1, 9))]
             for _ in range(30)]
    return {
        "class": type(tok).__name__,
        "vocab_size": size,
        "bos_id": tok.bos_token_id, "eos_id": tok.eos_token_id,
        "added_tokens": {str(t): i for i, t in sorted(tok.added_tokens_decoder.items())},
        "cases": [run(tok, text) for text in texts_for(tok)],
        "decode_cases": [{"ids": ids, "decoded": tok.decode(ids, skip_special_tokens=True),
                          "decoded_all": tok.decode(ids)} for ids in lists]}


def record(spec, shared):
    files = {name: value for name, value in spec.items() if name != "model_type"}
    return {"files": {"config.json": {"model_type": spec["model_type"]}, **files}, **compute(spec, shared)}


def write(path, value):
    lines = []
    for key, item in value.items():
        if isinstance(item, list):
            lines.append(f" {json.dumps(key)}: [\n  " + ",\n  ".join(json.dumps(i) for i in item) + "\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(item)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="ascii")


def make(data, fixtures, wanted):
    folder = data / "tokenizer_directories"
    train_shared(folder / "shared", fixtures)
    for name, spec in DIRECTORIES.items():
        if not wanted(name):
            continue
        value = record(spec, folder / "shared")
        write(folder / f"{name}.json", value)
        print(f"tokenizer directory {name}: {value['class']}, {value['vocab_size']} tokens, {len(value['cases'])} texts")


def check(data, wanted):
    folder = data / "tokenizer_directories"
    for name, spec in DIRECTORIES.items():
        if not wanted(name):
            continue
        stored = json.loads((folder / f"{name}.json").read_text())
        assert record(spec, folder / "shared") == stored, name
        print(f"tokenizer directory {name}: ok, {len(stored['cases'])} texts")
