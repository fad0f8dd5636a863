#!/usr/bin/env python3
"""Makes tests/data/chat/expected.json: conversations rendered by transformers' apply_chat_template with the templates of
tests/data/chat/templates, and small templates of single expressions rendered in the same environment.

Needs transformers 5.23 and jinja2 3.1.6. Run it from anywhere; the output is the same every time."""

import datetime
import json
import pathlib
import random

import jinja2
from transformers.utils import chat_template_utils

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "chat"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = 1751328000  # 2025-07-01 00:00 UTC; the tests run with TZ=UTC


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, tz or datetime.timezone.utc).replace(tzinfo=tz)


chat_template_utils.datetime = FixedTime

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Tells the weather \"now\" in a city, in °C.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city's name"},
            "days": {"type": "integer", "description": "How many days", "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "place": {"type": ["number", "string"]}}, "required": ["city"]},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "ping", "description": "Answers.",
                                      "parameters": {"type": "object", "properties": {}, "required": []}}},
]

CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function",
     "function": {"name": "get_weather", "arguments": {"city": "Zürich <&> \"x\"", "days": 2, "near": 0.1, "ok": True, "no": None}}}]}

CONVERSATIONS = {
    "user": [{"role": "user", "content": "Hello, who are you?"}],
    "system": [{"role": "system", "content": "You are terse.  "}, {"role": "user", "content": "  Why is the sky blue?\n"}],
    "turns": [{"role": "system", "content": "Be kind /no_think."}, {"role": "user", "content": "1 + 1?"},
              {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\nIt is 2."}, {"role": "user", "content": "And twice that?"}],
    "ended": [{"role": "user", "content": "Sag „Grüße“ 👋"}, {"role": "assistant", "content": "„Grüße“ 👋\n"}],
    "two_users": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "tool": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather in Zürich?"}, CALL,
             {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "{\"t\": 21.5}"},
             {"role": "assistant", "content": "21.5 degrees."}, {"role": "user", "content": "Thanks"}],
    "tool_pending": [{"role": "user", "content": "Weather?"}, dict(CALL, reasoning_content="Let me see."),
                     {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "rain"},
                     {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "more rain"}],
    "thinking": [{"role": "user", "content": "Think."}, {"role": "assistant", "content": "Done.", "thinking": "I thought."}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Look."}]},
              {"role": "user", "content": [{"type": "text", "text": " What is this? "}, {"type": "image"}]}],
    "odd": [{"role": "narrator", "content": "Once"}, {"role": "assistant", "content": ""}],
    "empty": [],
}

VARIANTS = [
    {}, {"add_generation_prompt": False}, {"tools": TOOLS}, {"tools": TOOLS, "tools_in_user_message": False},
    {"enable_thinking": False}, {"enable_thinking": True, "reasoning_effort": "high"},
    {"date_string": "4 July", "builtin_tools": ["code_interpreter", "brave_search"], "tools": TOOLS},
    {"documents": [{"doc_id": 1, "text": "A text."}], "controls": {"length": "short"}},
]


def render(template, variables):
    compiled = chat_template_utils._compile_jinja_template(template)
    return compiled.render(**variables)


def render_conversation(template, messages, variant):
    variables = dict(TOKENS)
    variables.update({key: value for key, value in variant.items() if key not in ("tools", "documents", "add_generation_prompt")})
    if hasattr(chat_template_utils, "_alias_reasoning_fields"):
        messages = chat_template_utils._alias_reasoning_fields(messages)
    variables.update(messages=messages, tools=variant.get("tools"), documents=variant.get("documents"),
                     add_generation_prompt=variant.get("add_generation_prompt", True))
    return render(template, variables)


def attempt(action):
    try:
        return {"text": action()}
    except jinja2.exceptions.TemplateError as error:
        kind = "rejected" if type(error) is jinja2.exceptions.TemplateError else "error"
        return {kind: str(error)}
    except Exception as error:  # Python's TypeError and similar errors
        return {"error": f"{type(error).__name__}: {error}"}


# The values that the expressions may use.
VARIABLES = {
    "i": 7, "n": -3, "z": 0, "x": 2.5, "y": -0.1, "big": 1e16, "small": 1.5e-7, "t": True, "f": False, "nothing": None,
    "s": "Hello World", "u": "Größe ß Ως 👋 e\u0301", "w": "  spaces \n\t around  ", "e": "", "q": "it's \"quoted\"\\ \x07\u00a0\n",
    "l": [3, 1, 2], "m": [1, "a", None, True, 2.0, [1, {"k": "v"}], {"a": [None]}], "words": ["b", "A", "c", "a"], "el": [],
    "d": {"b": 1, "a": [1, 2], "items": "shadow", "C": None, "é": "ü"}, "ed": {},
    "rows": [{"n": "x", "v": 3, "tag": "A"}, {"n": "y", "v": 1, "tag": "b"}, {"n": "z", "v": 2, "tag": "a", "more": {"deep": [10, 20]}}],
    "lines": "one\ntwo\r\n\nthree\u2028four", "csv": "a,b,,c",
}

EXPRESSIONS = r"""
i + 2 * 3 ** 2 - 1 // 2
-2 ** 2
2 ** 3 ** 2
7 // -2 ~ ' ' ~ 7 % -2 ~ ' ' ~ -7 // 2 ~ ' ' ~ -7 % 2
7.5 // 2, 7.5 % -2, -7.5 // 2, -7.5 % 2, 1 / 3, 4 / 2
i / 0
x // 0
1 if t
1 if f
(1 if f) is defined
'a' if f else 'b' if nothing else 'c'
i is odd, i is even, i is divisibleby 7, i is divisibleby(2)
x, y, big, small, 1e300 * 10, 0.1 + 0.2, 100000.0, 123456789012345678.0, 1e15, 1e-4, 1e-5
-0.0, +(-0.0), -(0.5 - 0.5), -0, -true
t + t, t * 3, t == 1, f == 0, 1 == 1.0, '1' == 1, none == false
1 < 2 < 3, 3 > 2 > 2, 1 < 2 == true
'a' < 'b', 'Z' < 'a', 'é' > 'z', [1, 2] < [1, 3], (1, 2) < (1, 2, 0)
1 < 'a'
nothing < 1
s[0], s[-1], s[20] is defined, s[1:4], s[::-1], s[-5:], s[:-6], s[::2], u[2:5], u[-2:], u[::-1]
l[0], l[-1], l[5] is defined, l[::-1], l[1:], m[5][1].k, m[-1]['a']
d.b, d['b'], d.items is callable, d['items'], d.missing is defined, d['a'][1]
d.missing
d.missing.more
missing
missing.more
missing + 'x'
missing ~ 'x'
missing is defined and missing.more
missing or 'default', missing and 1
[] or {} or '' or 0 or none or false
1 and 'x' and [2]
not t, not missing, not not l
'ell' in s, 'x' not in s, 3 in l, 4 in l, 'b' in d, none in m, 2 in m, '' in s
1 in s
1 in 5
'a' in missing
s + 1
s + nothing
l + [4], (1,) + (2,), l + (1,)
s * 2, 2 * 'ab', [0] * 3, 'a' * -1, 'a' * 0
m
[d, (1,), (), (1, 2), {}, [], '', q, u]
d
q
m|tojson, d|tojson, q|tojson, u|tojson(ensure_ascii=true), [x, y, big, small, 1e300]|tojson
m|tojson(indent=2)
d|tojson(indent=4, sort_keys=true)
d|tojson(separators=(',', ':')), el|tojson(indent=1), ed|tojson(indent=1), {1: 2, none: 3, true: 4, 1.5: 5}|tojson
missing|tojson
s|upper, s|lower, s|title, 'hELLO wORLD-foo (bar)'|title, 'hELLO'|capitalize, u|upper, u|lower, u|title, 'ΑΣ ΑΣΑ'|lower
s.upper(), s.lower(), 'hello wORLD it\'s'.title(), 'HeLLo'.capitalize(), 'Ab'.swapcase(), 'ΟΔΟΣ.'.lower()
w|trim, w.strip() == w|trim, 'xxaxx'|trim('x'), 'xyaxy'.strip('yx'), 'xxa'.lstrip('x'), 'axx'.rstrip('x'), '\u2003a\x1c'.strip()
s.split(), w.split(), csv.split(','), csv.split(',', 1), csv.rsplit(',', 1), 'a  b c '.split(None, 1), ' a b  c'.rsplit(None, 1), ''.split(), ''.split(','), 'abc'.split('bc')
s.split('')
lines.splitlines(), lines.splitlines(true), 'a\n'.splitlines(), ''.splitlines()
s.startswith('Hell'), s.endswith(('x', 'd')), s.startswith(('y',)), s.startswith('')
s.replace('l', 'L'), s.replace('l', 'L', 1), 'aaa'.replace('', '-'), 'ab'.replace('', '-', 2), s|replace('o', '0'), s|replace('o', '0', 1)
s.find('o'), s.rfind('o'), s.find('zz'), s.index('W'), s.count('l'), u.find('Ω'), u.count(''), s.find('o', 5), s.find('o', -3, -1), s.count('l', 4)
s.index('zz')
', '.join(['a', 'b']), l|join('-'), m|join(','), rows|join(', ', attribute='n'), l|join, ''|join(','), 'abc'|join('.')
', '.join([1])
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('x'), 'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('=')
'12'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' \t'.isspace(), 'AB'.isupper(), 'a1'.islower(), '1'.isupper(), 'Ab'.isupper()
'7'.zfill(3), '-7'.zfill(4), 'a'.ljust(3) ~ '|', 'a'.rjust(3), 'ab'.center(5, '*'), 'abc'.center(6, '*'), 'a'.center(4, '*'), s|center(15)
'{} {}'.format(1, 'a'), '{1}{0}'.format('a', 'b'), '{x}!'.format(x=[1]), '{{}}'.format()
'%s and %d' % ('a', 3), '%5.2f|%-4d|%04d|%x' % (1.234, 5, 6, 255), '%s' % none, '%%', '%(a)s' % {'a': 1}, '%s-%s'|format('x', 'y'), '%(k)s'|format(k=2)
'%s' % (1, 2)
'%d' % 'a'
l|length, s|length, u|length, d|length, missing|length, m|count
5|length
l|first, l|last, s|first, s|last, el|first is defined, u|last
l|sort, l|sort(reverse=true), words|sort, words|sort(case_sensitive=true), rows|sort(attribute='v')|map(attribute='n')|list
m|sort
l|min, l|max, words|min, words|max, rows|max(attribute='v'), el|min is defined
l|sum, rows|sum(attribute='v'), [1.5, 2]|sum, el|sum, [1]|sum(start=10)
words|unique|list, words|unique(case_sensitive=true)|list, [1, 1.0, true, 2]|unique|list
l|reverse|list, s|reverse, u|reverse
l|list, s|list, d|list, d|items|list, missing|items|list, missing|list
5|list
d|dictsort, d|dictsort(true), d|dictsort(reverse=true), {'x': 2, 'y': 1}|dictsort(false, 'value')
rows|groupby('tag')
rows|map(attribute='more.deep.1', default='-')|list, rows|map(attribute='n')|join, words|map('upper')|list, l|map('string')|list, csv.split(',')|map('default', 'none', true)|list
rows|selectattr('v', 'gt', 1)|map(attribute='n')|list, rows|rejectattr('v', '==', 1)|list|length, rows|selectattr('more')|list|length, rows|selectattr('more', 'undefined')|list|length
l|select('odd')|list, l|reject('odd')|list, m|select|list, m|select('string')|list, l|select('in', [1, 2])|list, m|reject('none')|list|length
missing|default('x'), nothing|default('x'), nothing|default('x', true), ''|d('y', true), d.zz|default(d.b), missing|default
'42'|int, '4.9'|int, 'x'|int, 'x'|int(5), 3.99|int, -3.99|int, none|int, ' 12 '|int, '+5'|int, t|int
'1.5'|float, 'x'|float, 'x'|float(2.5), 3|float, '1e3'|float, none|float
2.5|round, 3.5|round, 2.567|round(2), 2.5|round(method='floor'), 2.1|round(0, 'ceil'), 42|round, -2.5|round, 1234.5|round(-2), 0.125|round(2)
-5|abs, n|abs, y|abs
5|string ~ 'x', none|string, 1.0|string, l|string, t|string
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('>> '), 'a\n'|indent ~ '|'
'The quick brown fox jumps'|truncate(10), 'The quick brown fox'|truncate(9, true), 'short'|truncate(10), 'abcdefghijkl'|truncate(8, true, '…', 0)
'a b&c/d=é'|urlencode, {'a': 'b c', 'd': 1}|urlencode
'one two-three four_five'|wordcount, u|wordcount
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 0)|list
i is defined, missing is undefined, nothing is none, s is string, l is sequence, d is mapping, d is iterable, i is number, x is float, i is integer, t is boolean, t is integer, t is true, f is false, s is iterable, nothing is iterable, s is mapping, missing is iterable
i is eq 7, i is ne 7, i is lt 8, i is gt 8, i is le 7, i is ge 8, 1 is in [1], s is in ['x'], nothing is sameas none, t is sameas true
'AB' is upper, 'ab' is lower, 'Ab' is upper, raise_exception is callable, s is callable, i is not none, i is not odd
i is eq(7) and s is string or f
not i is odd
range(3)|list, range(1, 7, 2)|list, range(5, 0, -2)|list, range(0)|list, range(3)|join
range(1000000)
dict(a=1, b='x'), dict({'a': 1}, c=2), {'a': 1}.get('a'), {'a': 1}.get('b'), {'a': 1}.get('b', 3), d.keys()|list, d.values()|list, {'a': 1}.items()|list
d.update({'x': 1})
l.append(1)
d.pop('a')
l.index(1), l.count(3), m.index('a')
l.index(99)
'a' 'b' "c", 'tab\tnew\\n \x41 \u00e9 \101', "it's", 'say "hi"'
1_000 + 1, 1e3, 1.5E-3, 0
[1, 2,], (1,), {'a': 1,}, ()
s|upper|lower|title, (s|upper)[0], s.split()|first, s.split(' ')[1]|upper, -1|abs, (-1)|abs
s.foo is defined, s['upper']()
'x'|attr('upper') is callable, d|attr('b') is defined
s|nosuchfilter
s is nosuchtest
1 +
(1, 2
{'a' 1}
'unclosed
1..2
s.upper(
a b
{% if %}
namespace(a=1, b=2).b, namespace({'a': 1}).a
namespace(_a=1)
nothing.foo
nothing.foo is defined
nothing['foo'] is defined
nothing|length
i[0] is defined
i()
s()
missing()
d.nosuch()
[1, [2, [3]]]|string|length
1.0 == 1, 1.0|int, 3 | float | string
"\u4f60\u597d"|length, "你好"[0], "你好"|tojson
'a,b;c'.split(',')[1].split(';')[0]
'a'~1~none~[1]
true and false or true
none is none and not none
(l|length > 2) and 'long' or 'short'
loop is defined
""".strip("\n").split("\n")

TEMPLATES = [
    # What filters and methods make that is no list.
    "{% set g = rows|selectattr('n', 'equalto', 'none') %}{% if g %}T{% else %}F{% endif %}{{ g is sequence }}{{ g is iterable }}{{ g == [] }}{{ g|list }}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% else %}none{% endfor %}{{ g|list }}",
    "{% set g = l|reverse %}{{ g|first }}{{ g|first }}{{ g[0] is defined }}{{ g.0 is defined }}{{ g|list }}{{ g|first is defined }}",
    "{% set g = l|map('int') %}{{ 1 in g }}{{ g|list }}{{ 1 in g }}", "{% set g = l|select %}{% for x in g if x > 9 %}{% else %}e{% endfor %}{{ g|list }}",
    "{{ l|select|length }}", "{{ (l|map('string')) + ['a'] }}", "{{ (l|unique)[1:] }}", "{{ l|reverse|last }}", "{{ d|items|tojson }}",
    "{{ words|batch(2)|count }}", "{{ l|map('string')|reverse|length }}", "{{ rows|unique|list }}", "{{ [l]|unique|list }}",
    "{{ range(5)[1:3]|list }}{{ range(3)[-1] }}{{ range(3) == range(0, 3) }}{{ range(3) == [0, 1, 2] }}{{ range(0) or 1 }}{{ range(3)|length }}{{ 2 in range(3) }}",
    "{{ range(3) + [1] }}", "{{ range(3)|tojson }}", "{{ range(3) is sequence }}{{ range(3)|last }}{{ range(3)|reverse|list }}",
    "{% set k = d.keys() %}{{ k[0] is defined }}{{ k|length }}{{ k is sequence }}{{ k|last }}{{ k|list }}{{ k|list }}{{ 'b' in k }}{{ ed.keys() or 1 }}",
    "{{ d.values() + [] }}", "{{ d.keys()|tojson }}", "{{ d.items()[0:1] }}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}",
    "{% for x in el %}x{% else %}none{% endfor %}|{% for x in missing %}x{% else %}m{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for x in range(10) if x is odd %}{{ x }}{% if loop.index == 2 %}{% continue %}{% endif %}{% if x > 6 %}{% break %}{% endif %},{% endfor %}",
    "{% set a = 1 %}{% for x in l %}{% set a = a + x %}{{ a }},{% endfor %}{{ a }}",
    "{% set ns = namespace(a=0) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "{% if f %}{% set b = 1 %}{% endif %}{{ b is defined }}{% if t %}{% set b = 2 %}{% endif %}{{ b }}",
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d2) = (3, 4) %}{{ c + d2 }}",
    "{% set a, b = 1 %}",
    "{% set x1 %}  text {{ i }}  {% endset %}[{{ x1 }}]{% set x2 | upper | trim %}  abc {% endset %}[{{ x2 }}]",
    "{% set d.b = 2 %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b=5, a=4) }} {{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}",
    "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * (fact(n - 1)|int) }}{% endif %}{% endmacro %}{{ fact(6) }}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller('in') }}</{{ tag }}>{% endmacro %}{% call(x) wrap('b') %}{{ x }}{{ i }}{% endcall %}",
    "{% macro outer() %}{{ late }}{% endmacro %}{% set late = 'seen' %}{{ outer() }}",
    "{% filter upper %}a{{ s }}b{% endfilter %}{% filter replace('a', 'b')|trim %} aa {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% with %}{% set z1 = 1 %}{% endwith %}{{ z1 is defined }}",
    "{% raw %}{{ not }} {% this %}{% endraw %}|{%- raw -%}  {{ x }}  {%- endraw -%}|",
    "  {% if t %}\n    a\n  {% endif %}\nb\n",
    "a  {%- if t -%}  b  {%- endif -%}  c\n\n\nd {{- i -}} e\n",
    "a\n  {#- comment -#}  b\n   {# x #}\nc {# y #} d\n{# z +#}\n e",
    "a\n  {%+ if t %}b\n{% endif +%}\nc",
    "line1\r\nline2\rline3\n\n",
    "{{ 'a' }}\n{{ 'b' }}\n  {{ 'c' }}  \n",
    "{% if t %}x{% elif f %}y{% else %}z{% endif %}{% if f %}x{% elif t %}y{% else %}z{% endif %}{% if f %}x{% elif f %}y{% else %}z{% endif %}",
    "{% for x in [1, 2, 2, 3] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }},{% endfor %}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% for x in [[1, [2, [3]]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{{ loop.depth0 }}{% endfor %}",
    "{% generation %}x{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}",
    "{% for x in l %}{% for y in words %}{{ loop.index }}{% if y == 'A' %}{% break %}{% endif %}{% endfor %}{{ loop.index }}|{% endfor %}",
    "{{ raise_exception('no: ' ~ i) }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% nosuch %}", "{% endif %}", "{% if t %}", "{% for x in l %}",
    "{% break %}", "{{ i", "{% if t", "{# open", "{% for loop in l %}{% endfor %}", "{% set true = 1 %}", "}}", "{{ }}", "%} {",
    "{{ {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c }}{{ [1,2,3][1:][0] }}{{ 'abc'[1] }}{{ (1, 2)[0] }}",
    "{{ s.split(' ')[0] ~ '-' ~ s.split(' ')|last }}{{ rows[0].n }}{{ rows[2].more.deep[-1] }}{{ rows.0.n }}",
    "{% if 'x' in d and d.x %}1{% elif d.b == 1 and d['a'] is iterable and d.a is not string %}2{% endif %}",
    "{%if t%}a{%endif%}{{i}}{{-i}}{{ -i }}",
    "{{ '%}' }}{{ '}}' }}{% set k = '{{ x }}' %}{{ k }}",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "{% for x in (1, 2) %}{{ x }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{{ 1, 2 }}{{ (1) }}{{ () }}",
    "{{ [x for x in l] }}",
    # What the filter "safe" makes escapes what + joins it with.
    "{% set a = d|tojson|safe if d is mapping else d|string %}{{ a }}{{ '<' ~ a ~ '>' }}{{ 'x=' + a }}{{ a + '<&>' }}",
    "{{ \"Use '\"|safe + s + \"' & '\"|safe + q + \"'\n\"|safe + d|tojson }}",
    "{% set a = ' <a> & b '|safe %}{{ a|trim + '\"' }}{{ a.strip() + '<' }}{{ a|upper + '<' }}{{ a|replace('a', '<') + '<' }}{{ a[1:3] + '<' }}{{ a * 2 + '<' }}",
    "{% set a = '<a>,<b>'|safe %}{% for x in a.split(',') %}{{ x + '<' }}{% endfor %}{% for x in a %}{{ x + '<' }}{% endfor %}{{ [a, a]|join('<') + '<' }}{{ [a] }}",
    "{{ (1|safe) + '<' }}{{ none|safe + '<' }}{{ (l|safe) + '<' }}{{ missing|safe + '<' }}{{ '<'|safe == '<', '<'|safe is string, {'<': 1}['<'|safe] }}",
    "{% macro m() %}<{% endmacro %}{{ m()|safe + '<' }}{{ m() + '<' }}{% set b | safe %}<{% endset %}{{ b + '<' }}{{ '<%s>' % b }}{{ '<' + b|string }}{{ b|title + '<' }}{{ b|reverse + '<' }}",
    "{{ '<'|safe + 1 }}", "{{ '<'|safe + none }}",
    # Filters and tests that do not exist.
    "{% if f %}{{ s|nosuch }}{{ s is nosuch }}{% endif %}{{ s if t else s|nosuch }}", "{% if t %}{{ s|nosuch }}{% endif %}",
    "{% if f %}{% for x in l %}{{ x|nosuch }}{% endfor %}{% endif %}", "{% if f %}{% set a = 1|nosuch %}{% elif nothing is nosuch %}{% endif %}",
    "{% if f %}{% macro m(a=1|nosuch) %}{% endmacro %}{% endif %}", "{% for x in [] %}{{ x|nosuch }}{% endfor %}",
    "{{ missing is callable, nothing is callable }}{{ nothing|selectattr('a')|list, f|map('upper')|list, z|reject|list, nothing|rejectattr('a', 'eq', 1)|list }}",
    "{{ t|select|list }}",
]


def random_expressions(count):
    """Generates random expressions, most of which evaluate without an error."""
    rng = random.Random(20251125)
    names = list(VARIABLES)

    def atom():
        return rng.choice([rng.choice(names), str(rng.randint(-3, 9)), "'" + rng.choice(["a", "lo", "Größe", " x "]) + "'", "1.5", "none",
                           "true", "[1, 'b']", "missing"])

    def expression(depth):
        if depth == 0:
            return atom()
        a, b = expression(depth - 1), expression(depth - 1)
        return rng.choice([
            f"({a} {rng.choice(['+', '-', '*', '//', '%', '/'])} {b})", f"({a} ~ {b})",
            f"({a} {rng.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {b})",
            f"({a} {rng.choice(['and', 'or'])} {b})", f"(not {a})", f"({a} if {b} else {atom()})",
            f"({a}|{rng.choice(['string', 'length', 'upper', 'trim', 'tojson', 'list', 'first', 'last', 'int', 'default(1)', 'join', 'title', 'sort', 'reverse|string', 'capitalize', 'float'])})",
            f"({a})[{rng.randint(-2, 2)}]",
            # Names are sliced, because Jinja folds slices of constants, with different results than at run time.
            f"{rng.choice(names)}[{rng.randint(-2, 1)}:{rng.randint(0, 4)}]",
            f"({a} is {rng.choice(['defined', 'none', 'string', 'number', 'mapping', 'iterable', 'sequence', 'boolean', 'true', 'integer'])})",
            f"[{a}, {b}]", f"{{'k': {a}}}", f"({a}, {b})",
        ])

    return [expression(rng.choice([1, 1, 2, 2, 3])) for _ in range(count)]


# Excludes deliberate differences from Python: results that are errors here, or that depend on CPython's objects.
def is_comparable(result):
    text = result.get("text", "")
    return not any(word in text for word in ("<function", "<bound", "<generator", "<built-in", "<Macro", " object at 0x", "Undefined"))


def main():
    conversations = []
    for path in sorted((DATA / "templates").glob("*.jinja")):
        template = path.read_text()
        for name, messages in CONVERSATIONS.items():
            for variant in VARIANTS:
                result = attempt(lambda: render_conversation(template, messages, variant))
                conversations.append({"template": path.stem, "conversation": name, "variant": variant, **result})
    # A variant that does not change a template's output is dropped.
    kept = []
    seen = set()
    for entry in conversations:
        key = (entry["template"], entry["conversation"], entry.get("text"), entry.get("error"), entry.get("rejected"))
        if key not in seen:
            kept.append(entry)
        seen.add(key)
    expressions = []
    for text in ["{{ " + line + " }}" for line in EXPRESSIONS] + TEMPLATES + ["{{ " + line + " }}" for line in random_expressions(1000)]:
        result = attempt(lambda: render(text, VARIABLES))
        if is_comparable(result):
            expressions.append({"template": text, **{key: value if key != "error" else True for key, value in result.items()}})
    for entry in kept:
        if "error" in entry:
            entry["error"] = True
    out = {"tokens": TOKENS, "now": NOW, "conversations": CONVERSATIONS, "rendered": kept, "variables": VARIABLES,
           "expressions": expressions}
    (DATA / "expected.json").write_text(json.dumps(out, ensure_ascii=False, indent=0, sort_keys=False) + "\n")
    print(len(kept), "conversations,", len(expressions), "expressions,",
          sum("error" in entry for entry in expressions), "of them errors")


if __name__ == "__main__":
    main()
