"""Renders templates with Python's jinja2, set up as transformers sets it up, and writes what it renders:
cases.json, a list of [template, text or {"error": …}], where all see the names in CONTEXT; and chat/renderings.json, every
chat template of chat/ with every conversation in CONVERSATIONS.  `pip install jinja2`; `python reference.py`."""
import datetime, json, pathlib
import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 3, 9, 7, 5, 2)
CONTEXT = {
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "n": 3}],
    "text": "Hello, wörld", "empty": "", "blank": " \t a b  c \n", "lines": "one\n  two\r\nthree\n\nfour",
    "zero": 0, "seven": 7, "minus": -7, "big": 12345678901234567890, "pi": 3.14159, "tiny": 1e-7, "huge": 1e22, "half": 2.5,
    "yes": True, "no": False, "nothing": None, "items": [3, 1, 2], "words": ["b", "A", "c", "B"], "nested": {"a": {"b": [1, {"c": "d"}]}, "z": 1},
    "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 0}], "quotes": "it's \"so\" \\ <b>&\n\t\x01 é 🚌",
}

class Generation(Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)
    def _body(self, caller):
        return caller()

def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env

EXPRESSIONS = r"""
1 + 2 * 3 ** 2 - 4 // 3
-7 // 2
-7 % 3
7 % -3
7.5 // 2
7.5 % -2
2 ** -1
2 ** 0.5
1 / 2
10 / 5
1e3
1.5e-5
0.1 + 0.2
1_000
0x1f
0o17
0b101
pi
tiny
huge
half
big
big + 1
-half
- 3 | abs
-minus
not 1 == 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
"a" < "b"
"B" < "a"
[1, 2] < [1, 3]
(1, 2) == (1, 2)
[1] == (1,)
{"a": 1} == {"a": 1.0}
"a" ~ 1 ~ none ~ true ~ 1.0
"a" + "b" * 3
[1] + [2] * 2
"a" "b" 'c'
"tab\there \x41 \u00e9 \q"
'it\'s'
[1, "two", none, true, 1.5, [], {}, ()]
(1,)
{"a": "it's", 1: 'say "x"', none: 'b\'"'}
quotes
[quotes]
text[0]
text[-1]
text[99]
text[1:4]
text[::-1]
text[-3:]
text[5:1]
text[5:1:-2]
text[:-1]
items[0]
items[-1]
items[5]
items[1:]
items[::-1]
items[-2:]
items[::2]
items[10:]
(1,2,3)[1:]
nested.a.b[1].c
nested["a"]["b"][0]
nested.missing
nested.missing is defined
nested.a.missing.deeper
missing
missing.attribute
missing[0]
missing is defined
missing is undefined
missing or "fallback"
missing | default("d")
empty | default("d")
empty | default("d", true)
empty | d("x", boolean=true)
nothing | default("d")
"" or none or 0
"a" and "b"
"a" if yes else "b"
"a" if no
("a" if no) is defined
1 in items
9 not in items
"ell" in text
"a" in nested
"x" in missing
1 in none
text is string
items is sequence
text is sequence
nested is mapping
nested.items() is iterable
nested.items() is sequence
none is none
nothing is none
1 is number
true is number
true is integer
1.0 is float
yes is boolean
yes is true
no is false
3 is odd
4 is even
9 is divisibleby 3
9 is divisibleby(2)
"abc" is lower
"ABC" is upper
1 is eq 1
2 is gt 1
1 is in [1, 2]
1 is sameas 1
missing is iterable
none is iterable
text is not none and text is defined
range is callable
messages[0].role is eq "user"
messages | length
text | length
nested | length
text | count
text | upper
"HELLO World" | lower
"hello wORLD foo-bar (baz)" | title
"hello wORLD they're 3rd" | capitalize
"hello wORLD they're 3rd".title()
"ß ŉ ǆ".upper()
text | reverse
items | reverse | list
items | sort
items | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
rows | sort(attribute="v") | map(attribute="k") | join
rows | sort(attribute="k,v") | map(attribute="v") | list
words | unique | list
words | unique(case_sensitive=true) | list
words | map("upper") | list
words | map("replace", "b", "x") | join("-")
items | map("string") | list
rows | map(attribute="missing", default="?") | list
rows | selectattr("k", "equalto", "x") | list | length
rows | rejectattr("k", "eq", "x") | list
rows | selectattr("v") | map(attribute="v") | list
items | select("odd") | list
items | select(">", 1) | list
items | reject("in", [1]) | list
[0, 1, "", "a", none] | select | list
items | sum
rows | sum(attribute="v")
items | max
items | min
words | max
[] | max
[] | first
items | first
items | last
items | join(", ")
rows | join("|", attribute="k")
items | batch(2) | list
items | batch(2, 0) | list
items | slice(2) | list
rows | groupby("k") | list
nested | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort
{"b": 1, "A": 2, "c": 0} | dictsort(true)
{"b": 1, "A": 2, "c": 0} | dictsort(by="value", reverse=true)
nested | items | list
nested | list
text | list
"3.7" | int
"x" | int
"x" | int(5)
"0x1f" | int(base=16)
"ff" | int(0, 16)
3.99 | int
"3.5" | float
"x" | float
3 | float
2.5 | round
3.5 | round
2.675 | round(2)
42.55 | round(1, "floor")
42.55 | round(1, "ceil")
42 | round
-3 | abs
lines | indent
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent("> ")
text | replace("l", "L")
text | replace("l", "L", 1)
text.replace("l", "")
text.replace("", "-")
"ab" | center(7)
"abc".center(8, "*")
"abc".ljust(5, ".")
"abc".rjust(5)
"-42".zfill(6)
"a very long text that has many words" | truncate(15)
"a very long text that has many words" | truncate(15, true)
"a very long text that has many words" | truncate(15, false, "…", 0)
"short" | truncate(5)
"one two  three" | wordcount
"<a href='x'>&" | escape
"<b>" | safe + "<i>"
"<i>" + "<b>" | safe
"<b>" | safe | upper + "<i>"
"a b/ü&" | urlencode
"%s is %d and %.2f" | format("x", 3, 2.5)
"%(a)s-%(b)05d" | format(a=1, b=2)
"%5s|%-5s|%05d|%x|%X|%o|%e|%g|%%" % ("a", "b", 42, 255, 255, 8, 12345.678, 0.0001)
"%s" % "one"
"%r" % "one"
"%+d % d" % (3, 4)
"%s %s" % ("a",)
"{} {}".format("a", 1)
"{1} {0}".format("a", "b")
"{name}!".format(name="x")
"{:>6}|{:<6}|{:^6}|{:*^7}".format("a", "b", "c", "d")
"{:05d} {:,} {:.3f} {:e} {:g} {:%} {:+} {:x} {:#x} {:b}".format(42, 1234567, 3.14159, 12345.678, 1e-7, 0.256, 5, 255, 255, 5)
"{:.2}".format("abcdef")
"{!r} {!s}".format("a", "b")
"{0[a]} {0[b][1]}".format({"a": 1, "b": [2, 3]})
"{{}} {}".format(1)
"{:{}}|".format("a", 5)
"{".format()
"{} {}".format(1)
"a,b,,c".split(",")
"a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1)
blank.split()
blank.split(none, 1)
blank.rsplit(none, 1)
"".split()
"".split(",")
"abc".split("")
blank.strip()
blank.lstrip()
blank.rstrip()
"xxabcxx".strip("x")
"abcabc".lstrip("ab")
"</think>x".split("</think>")[-1]
blank | trim
"xax" | trim("x")
lines.splitlines()
lines.splitlines(true)
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("x")
"prefix-x".removeprefix("prefix-")
"x.py".removesuffix(".py")
text.startswith("Hell")
text.startswith(("x", "H"))
text.startswith("ell", 1)
text.endswith("ld")
text.endswith(1)
text.find("l")
text.find("zz")
text.rfind("l")
text.find("l", 5)
text.index("zz")
text.count("l")
"-".join(["a", "b"])
"-".join([1])
"aBc".swapcase()
"abc".isalpha()
"a1".isalnum()
"12".isdigit()
"½".isnumeric()
"½".isdigit()
" ".isspace()
"".isspace()
"Abc Def".istitle()
"a\tb".expandtabs(4)
"Ünïcode".isascii()
nested.keys() | list
nested.values() | list
nested.items() | list
nested.get("z")
nested.get("q")
nested.get("q", 5)
nested.items()
nested.keys()
items.index(1)
items.count(3)
items.append(4)
nested.update({})
nested.pop("a")
nested.copy()
nested | tojson
quotes | tojson
quotes | tojson(ensure_ascii=true)
nested | tojson(indent=2)
nested | tojson(indent="\t")
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}] | tojson(indent=1)
nested | tojson(separators=(",", ":"))
nested | tojson(indent=4, separators=(" ,", "= "))
{"b": 1, "a": {"d": 1, "c": 2}} | tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 6} | tojson
[1.0, 1e22, 1e-7, 0.1, -0.0, big] | tojson
(1, 2) | tojson
missing | tojson
nested.items() | tojson
none | tojson
range(5) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(3) | length
range(1000000)
dict(a=1, b=2)
dict([("a", 1)], b=2)
namespace(a=1).a
strftime_now("%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %y %I %p %%")
strftime_now("%-d %-m %e")
raise_exception("no!")
unknown_function()
text()
none.x
none[0]
1 + "a"
"a" + 1
"a" + none
[1] + (2,)
none + 1
none < 1
"a" * -1
1 // 0
1 % 0
1 / 0
text | unknown_filter
text is unknown_test
none | length
none | join
none | list
5 | first
"x" | abs
{"a": 1}.a
{"items": 1}.items is mapping
{"items": 1}["items"]
messages[1].content is none
messages[-1]["role"]
(messages | last).role
messages | map(attribute="role") | join(", ")
[messages[0].role, messages[1].n]
text.upper().lower()[0:2] ~ "!"
not yes or yes
1 if 2 if 0 else 3 else 4
items | list == items
"%c" % "x"
"abc"[1]
"abc".0
items.0
[x for x in y]
"a" is string and 1 is number
yes and not no
(1, 2)[0]
{}["x"] is defined
[[1, 2], [3, 4]] | map("first") | list
[[1, 2], [3, 4]] | map("join", "-") | list
["a", "b"] | map("tojson") | join(", ")
["a"] * 3
3 * "ab"
1.0 * 3
7 | string ~ "x"
none | string
"1,2" | replace(",", none)
"x" | default
messages | selectattr("role", "in", ["user"]) | list | length
messages | selectattr("content", "none") | list | length
messages | selectattr("n", "defined") | list | length
messages | rejectattr("n", "undefined") | list | length
"a" in ["a", "b"] and "c" not in ["a"]
1 is number or x
true and false or true
""" .strip("\n").split("\n")

TEMPLATES = [
    "{% for x in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in items %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in items if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}empty{% endfor %}",
    "{% for x in missing %}x{% else %}empty{% endfor %}",
    "{% for x in nothing %}x{% endfor %}",
    "{% for k, v in nested.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in nested %}{{ k }};{% endfor %}",
    "{% for c in 'aé🚌' %}{{ c }}.{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for x in items %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in items %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in items %}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in (1, 2), 3 %}{{ x }};{% endfor %}",
    "{% set x = 1 %}{% for i in items %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for i in items %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set d = {} %}{% set d.a = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x %}a {{ seven }}{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} a {% endset %}[{{ x }}]",
    "{% if no %}a{% elif seven > 5 %}b{% else %}c{% endif %}",
    "{% if yes %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% filter upper | replace('B', 'x') %}abc{% endfilter %}",
    "{% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(c=3, a=0) }} {{ m() }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{% endcall %}",
    "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y is defined }}",
    "{% macro m(x) -%}  {{ x }}  {%- endmacro %}[{{ m(1) | trim }}]{{ m(2) ~ 'x' }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% generation %}a{{ seven }}{% endgeneration %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}!",
    "a  {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "a {# comment {{ x }} #} b {#- c -#} d",
    "  {# c #}\nnext\n  {#- d #}\n",
    "  {% if yes %}\n  a\n  {% endif %}\nb\n",
    "  {%+ if yes %}\n  a\n  {%- endif %}\nb\n\n",
    "{% if yes +%}\n a\n{% endif %}",
    "x {% if yes %} a {% endif %} y",
    "{{ 1 }}\n{{ 2 }}  \n  {{ 3 }}\n",
    "{{- 1 -}}  \n  {{- 2 }}",
    "{%- for x in items -%}\n  {{ x }}\n{%- endfor -%}\n",
    "a\r\nb\rc\n",
    "\n{{ 1 }}\n\n",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}} }}",
    "{{ '}}' }}{{ '%}' }}",
    "{% set x = '{% raw %}' %}{{ x }}",
    "{{ 'multi\nline' }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{{ j() }}c",
    "{% set g = items | map('string') %}{{ g | list }}{{ g | list }}",
    "{% block b %}in{% endblock %}",
    "{% autoescape false %}<{% endautoescape %}",
    "{% print 1, 2 %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
    "{% unknown %}", "{% if %}", "{% if yes %}", "{{ 1 +  }}", "{{ (1 }}", "{{ 'a }}", "{% endif %}", "{{ a b }}", "{% for x %}{% endfor %}", "{{ ] }}", "{% break %}", "{# x",
    "{% set true = 1 %}", "{{ x.y.z }}", "{{ 1 }", "{% if yes %}a{% else %}b{% else %}c{% endif %}",
    "{{ caller }}{{ loop is defined }}",
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}\n{% if m['content'] %}{{ m['content'] | trim }}{% endif %}{{ eos_token }}\n{% endfor %}",
    "{%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] if not ns.found -%}{%- if m.role == 'user' -%}{%- set ns.found = true -%}{{ m.content }}{%- endif -%}{%- endfor -%}",
    "{% set x = messages[0] %}{{ x.role }}{% set messages = messages[1:] %}{{ messages | length }}",
    "{{ {'role': 'user'} | tojson }}{{ {'role': 'user'} }}",
    "{% for x in items | sort %}{{ x }}{{ ', ' if not loop.last else '.' }}{% endfor %}",
    "{% for k, v in nested | dictsort %}{{ k }}{% endfor %}",
    "{% for r in rows | groupby('k') %}{{ r[0] }}{{ r.grouper }}{{ r.list | length }}{% endfor %}",
    "{% set x = 1 if yes %}{{ x }}{% set y = 1 if no %}{{ y }}{{ y is defined }}",
]

def function(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}

def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

def message(role, content, **more):
    return {"role": role, "content": content, **more}

TOOLS = [
    function("find_train", "finds a train between two stations.", to={"type": "string", "description": "a station, as \"Genève\""},
             stops={"type": "array", "items": {"type": "string"}}, kind={"type": "string", "enum": ["IC", "S"]}),
    function("book", "books seats.", seats={"type": "integer"}, options={"type": "object", "properties": {"window": {"type": "boolean"}}, "required": ["window"]},
             price={"type": ["integer", "null"]}),
]
FIND = call("abc123def", "find_train", {"to": "Genève", "stops": ["Bern", "it's"]})
BOOK = call("abc123deg", "book", {"seats": 2, "options": {"window": True}, "price": 12.50})
FOUND = message("tool", "{\"at\": \"9:05\"}", tool_call_id="abc123def", name="find_train")
CONVERSATIONS = {
    "question": dict(messages=[message("user", "Good morning")]),
    "instructed": dict(messages=[message("system", " Be short. "), message("user", "Hi"), message("assistant", " Hello. "), message("user", "\tHow are\nyou? ")]),
    "without_prompt": dict(messages=[message("user", "Hi"), message("assistant", "Hello.", reasoning_content="a greeting")], add_generation_prompt=False),
    "odd_characters": dict(messages=[message("user", "naïve 𝒳 👩‍👩‍👧 <b>&\"'</b> {{ 7*7 }} {% raw %} \\n\x01")]),
    "parts": dict(messages=[message("user", [{"type": "text", "text": "See "}, {"type": "image"}, {"type": "text", "text": "this"}])], number_images=True),
    "unknown_part": dict(messages=[message("user", [{"type": "smell"}])]),
    "tools": dict(messages=[message("system", "Use tools."), message("user", "A train?")], tools=TOOLS),
    "called": dict(messages=[message("user", "A train?"), message("assistant", "", tool_calls=[FIND]), FOUND], tools=TOOLS),
    "called_twice": dict(messages=[message("user", "Both"), message("assistant", None, tool_calls=[FIND, BOOK]), FOUND, message("tool", "ok", tool_call_id="abc123deg")], tools=TOOLS),
    "called_with_text": dict(messages=[message("user", "A"), message("assistant", "One moment.", tool_calls=[call("abc123def", "book", "{\"seats\": 1}")]), FOUND, message("assistant", "Booked."), message("user", "Thanks")], tools=TOOLS),
    "thoughts": dict(messages=[message("user", "2+2?"), message("assistant", "<think>\ntwo\n</think>\n\n4"), message("user", "3+3?"), message("assistant", "6", reasoning_content="\nthree\n")], keep_thoughts=False),
    "not_thinking": dict(messages=[message("user", "Hi")], enable_thinking=False, reasoning_effort="high"),
    "developer": dict(messages=[message("developer", "Be brief."), message("user", "Hi")]),
    "two_users": dict(messages=[message("user", "a"), message("user", "b"), message("narrator", "c"), message("user", "d")]),
    "documents": dict(messages=[message("user", "Q")], documents=[{"title": "a long-haul story", "text": "body"}, {"title": "T"}]),
}

def render(env, source, names):
    try:
        return env.from_string(source).render(**json.loads(json.dumps(names)))
    except Exception as e:
        return {"error": str(e)}

def chat(env, here):
    given = {"bos_token": "<BOS>", "eos_token": "<EOS>", "add_generation_prompt": True, "tools": None, "documents": None}
    out = {}
    for path in sorted(here.glob("*.jinja")):
        out[path.stem] = {name: render(env, path.read_text(), {**given, **names}) for name, names in CONVERSATIONS.items()}
    names = json.dumps(CONVERSATIONS, ensure_ascii=False, indent=1)
    (here / "renderings.json").write_text('{"conversations": %s,\n"renderings": %s}\n' % (names, json.dumps(out, ensure_ascii=False, indent=1)))
    texts = sum(isinstance(text, str) for renderings in out.values() for text in renderings.values())
    print(texts, "renderings of", len(out), "chat templates,", len(out) * len(CONVERSATIONS) - texts, "errors")

def main():
    env, out = environment(), []
    for source in ["{{ %s }}" % e for e in EXPRESSIONS] + TEMPLATES:
        out.append([source, render(env, source, CONTEXT)])
    here = pathlib.Path(__file__).parent
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in out)
    context = json.dumps(CONTEXT, ensure_ascii=False)
    (here / "cases.json").write_text('{"context": %s,\n"cases": [\n%s\n]}\n' % (context, lines))
    chat(env, here / "chat")
    print(len(out), "cases,", sum(isinstance(o, dict) for _, o in out), "errors")

main()
