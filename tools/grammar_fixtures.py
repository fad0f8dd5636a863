#!/usr/bin/env python3
"""Makes tests/data/grammars.json: which texts belong to grammars in GBNF, as xgrammar says, and which JSON texts are valid
under schemas, as jsonschema says.

    tools/grammar_fixtures.py                            writes the file
    tools/grammar_fixtures.py --validate BINARY [TIMES]  lets the command write JSON texts with the bundled model for each
                                                         schema, and checks them with jsonschema

Needs xgrammar 0.1.27 or later and jsonschema 4.26. The output is the same every time."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parent.parent
GRAMMARS = 45
TEXTS = 12

# -- random grammars: nested lists ("text", s), ("class", characters, negated), ("rule", i), ("seq", ...), ("or", ...),
# ("repeat", part, least, most)


def random_part(rng, rules, depth, guarded):
    kinds = ["text", "text", "class", "seq", "or", "repeat", "rule"] if depth < 3 else ["text", "class", "rule"]
    kind = rng.choice(kinds)
    if kind == "rule":
        # Behind a literal any rule may follow; before one, only later rules, so that none begins with itself.
        return ("seq", ("text", rng.choice("abcd")), ("rule", rng.choice(guarded))) if guarded else ("text", "d")
    if kind == "text":
        return ("text", "".join(rng.choice(["a", "b", "c", "é", "\"", "\\", "\n", "]", "€"]) for _ in range(rng.randint(0, 3))))
    if kind == "class":
        return ("class", "".join(sorted({rng.choice("abcdé€-]^") for _ in range(rng.randint(1, 3))})), rng.random() < 0.2)
    if kind == "repeat":
        least = rng.randint(0, 2)
        return ("repeat", random_part(rng, rules, depth + 1, guarded), least, rng.choice([-1, least + rng.randint(0, 2)]))
    return (kind, *[random_part(rng, rules, depth + 1, guarded) for _ in range(rng.randint(1, 3))])


def literal(text):
    return "".join({"\n": "\\n", "\"": "\\\"", "\\": "\\\\"}.get(c, c) for c in text)


def written(part):
    kind = part[0]
    if kind == "text":
        return f'"{literal(part[1])}"'
    if kind == "class":
        return "[" + ("^" if part[2] else "") + "".join({"]": "\\]", "-": "\\-", "^": "\\^"}.get(c, c) for c in part[1]) + "]"
    if kind == "rule":
        return f"r{part[1]}" if part[1] else "root"
    if kind == "seq":
        return "(" + " ".join(written(p) for p in part[1:]) + ")"
    if kind == "or":
        return "(" + " | ".join(written(p) for p in part[1:]) + ")"
    least, most = part[2:]
    sign = {(0, -1): "*", (1, -1): "+", (0, 1): "?"}.get((least, most), f"{{{least},{'' if most < 0 else most}}}")
    return f"({written(part[1])}){sign}"


def sample(rng, rules, part, budget):
    budget[0] -= 1
    if budget[0] < 0:
        raise RecursionError
    kind = part[0]
    if kind == "text":
        return part[1]
    if kind == "class":
        return rng.choice([c for c in "abcdxyé€-]^" if (c in part[1]) != part[2]])
    if kind == "rule":
        return sample(rng, rules, rules[part[1]], budget)
    if kind == "seq":
        return "".join(sample(rng, rules, p, budget) for p in part[1:])
    if kind == "or":
        return sample(rng, rules, rng.choice(part[1:]), budget)
    most = part[3] if part[3] >= 0 else part[2] + rng.randint(0, 3)
    return "".join(sample(rng, rules, part[1], budget) for _ in range(rng.randint(part[2], most)))


def mutated(rng, text):
    at = rng.randint(0, len(text))
    return rng.choice([text[:at] + text[at + 1:], text[:at] + rng.choice("abcdé€\n\"]") + text[at:], text[:at], text + text[at:]])


def grammar_cases():
    import xgrammar
    from xgrammar.testing import _is_grammar_accept_string

    rng = random.Random(22)
    cases = []
    while len(cases) < GRAMMARS:
        count = rng.randint(1, 4)
        rules = [None] * count
        for i in range(count):
            rules[i] = ("or", *[random_part(rng, rules, 0, list(range(count))) for _ in range(rng.randint(1, 2))])
        text = "".join(f"{'r' + str(i) if i else 'root'} ::= {written(rule)}\n" for i, rule in enumerate(rules))
        texts, changed = set(), set()
        for _ in range(200):
            try:
                made = sample(rng, rules, rules[0], [300])
            except RecursionError:
                continue
            if len(made) < 60:
                texts.add(made)
                changed |= {mutated(rng, made), mutated(rng, mutated(rng, made))}
        if len(texts) < 3:  # one that hardly ever ends
            continue
        texts = rng.sample(sorted(texts), min(TEXTS // 2, len(texts)))
        texts += rng.sample(sorted(changed - set(texts)), min(TEXTS - len(texts), len(changed - set(texts))))
        grammar = xgrammar.Grammar.from_ebnf(text)
        cases.append({"grammar": text, "texts": [[t, bool(_is_grammar_accept_string(grammar, t))] for t in texts]})
    return cases


# -- schemas, each with values that are valid

SCHEMAS = [
    ({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": -3, "maximum": 120},
                                       "mail": {"type": ["string", "null"]}}, "required": ["name", "age"],
      "additionalProperties": False},
     [{"name": "Zoë \"x\" \\ \n", "age": 7}, {"name": "", "age": -3, "mail": None}, {"name": "a", "age": 120, "mail": "b"}]),
    ({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": {"type": "null"}}},
     [{}, {"a": 1.5}, {"b": True, "c": None}, {"a": -2e10, "c": None}]),
    ({"type": "array", "items": {"enum": ["red", "green", 3, None, {"k": [1, 2]}]}, "minItems": 1, "maxItems": 3},
     [["red"], [3, None], ["green", {"k": [1, 2]}, "red"]]),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}, "minItems": 1},
     [["x"], ["x", 1], ["x", 1, True, False]]),
    ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2]]),
    ({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"},
                                                           "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                         "required": ["value", "children"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
     [{"value": 1, "children": []}, {"value": 1, "children": [{"value": -2, "children": [{"value": 0, "children": []}]}]}]),
    ({"anyOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
                 "required": ["kind", "r"], "additionalProperties": False},
                {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "integer", "minimum": 1}},
                 "required": ["kind", "side"], "additionalProperties": False}]},
     [{"kind": "circle", "r": 0.25}, {"kind": "square", "side": 12}]),
    ({"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "äöü€", "a\"\\b", "\U0001F600xy"]),
    ({"type": "string", "pattern": "^[A-Z]{2}-\\d{3,4}(\\.[a-z]+)?$"}, ["AB-123", "ZZ-0000.abc"]),
    ({"type": "string", "pattern": "b+|^x[^a-c\"]y$"}, ["b", "abba", "xzy", "x\\y"]),
    ({"type": "string", "format": "date-time"}, ["2024-02-28T23:59:59Z", "1999-12-31T00:00:00.5+02:00"]),
    ({"type": "string", "format": "uuid"}, ["01234567-89ab-cdef-0123-456789abcdef"]),
    ({"type": "integer", "minimum": 17, "exclusiveMaximum": 1203}, [17, 99, 100, 999, 1000, 1202]),
    ({"type": "integer", "maximum": -5}, [-5, -10, -99999]),
    ({"type": "integer", "exclusiveMinimum": -1.5, "maximum": 1.5}, [-1, 0, 1]),
    ({"type": "number", "minimum": -1.25, "maximum": 2.5}, [-1.25, -1.2, -1, -0.001, 0, 1.75, 2, 2.4999, 2.5]),
    ({"type": "number", "exclusiveMinimum": 0.125, "exclusiveMaximum": 0.5}, [0.2, 0.126, 0.1251, 0.4, 0.49]),
    ({"type": "number", "minimum": 100, "exclusiveMaximum": 1000}, [100, 100.5, 999.99, 500]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "ü": 2}]),
    ({"type": "object", "properties": {"id": {"type": "integer"}, "idea": {"type": "string"}}, "required": ["id", "other"],
      "additionalProperties": {"type": "boolean"}},
     [{"id": 1, "other": True}, {"id": 1, "idea": "x", "other": False, "i": True, "ide": False, "ideas": True}]),
    ({"oneOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]}, [1, [1, [2, []]]]),
    ({"enum": [1, "1", True, None], "type": ["integer", "null"]}, [1, None]),
    ({"title": "anything"}, [None, True, -1.5, "x", [1, "a", {}], {"a": {"b": [None]}}]),
    ({"type": "array"}, [[], [1, [2], {"x": None}]]),
]


def valid(schema, text):
    def refuse(constant):
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_constant=refuse)
        value_text = json.dumps(value, ensure_ascii=False)
        value_text.encode()  # no lone surrogates
    except ValueError:
        return False
    checker = jsonschema.FormatChecker()
    return jsonschema.Draft202012Validator(schema, format_checker=checker).is_valid(value)


def schema_cases():
    rng = random.Random(8)
    cases = []
    for schema, values in SCHEMAS:
        texts = {}
        for value in values:
            for text in (json.dumps(value, ensure_ascii=False), json.dumps(value, separators=(",", ":"))):
                assert valid(schema, text), (schema, text)
                texts[text] = True
                for _ in range(12):
                    at = rng.randint(0, len(text))
                    piece = rng.choice(["0", "9", "-", ".", ",", "\"", "}", "]", "[", "null", "e5", "a", "\\", " ", "x\":"])
                    changed = rng.choice([text[:at] + text[at + 1:], text[:at] + piece + text[at:], text[:at] + piece + text[at + 1:]])
                    if not valid(schema, changed):
                        texts[changed] = False
        chosen = [t for t in texts if texts[t]] + rng.sample([t for t in texts if not texts[t]],
                                                             min(14, sum(not v for v in texts.values())))
        cases.append({"schema": schema, "texts": [[t, texts[t]] for t in chosen]})
    return cases


def validate(binary, times):
    checked = complete = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (schema, _) in enumerate(SCHEMAS):
            path = pathlib.Path(folder) / "schema.json"
            path.write_text(json.dumps(schema))
            command = [binary, "generate", "--model", str(ROOT / "models" / "stories"), "--json-schema", str(path), "--json",
                       "--temperature", "1.3", "--max-new-tokens", "160", "--seed", str(number)]
            for i in range(times):
                command += ["--prompt", f"Story {i}"]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for completion in result["completions"]:
                checked += 1
                if completion["finish_reason"] == "length":
                    continue
                complete += 1
                if not valid(schema, completion["text"]):
                    sys.exit(f"not valid under {json.dumps(schema)}: {completion['text']}")
    print(f"{complete} of {checked} texts were complete, and all of these are valid")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--validate"]:
        validate(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 8)
    else:
        made = {"grammars": grammar_cases(), "schemas": schema_cases()}
        lines = ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]"
                           for key, cases in made.items())
        (ROOT / "tests" / "data" / "grammars.json").write_text("{\n" + lines + "\n}\n")
