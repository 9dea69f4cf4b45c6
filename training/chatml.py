"""How a conversation becomes text: the chat template, and the same rendering in Python for training.

`check.py` compares the two on real conversations, so they cannot drift apart.
"""

import json

START, END, STOP = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL = [STOP, START, END]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"]

TOOLS_BEFORE = "# Tools\n\nThese functions can be called:\n<tools>"
TOOLS_AFTER = '\n</tools>\n\nTo call one, answer with\n<tool_call>\n{"name": NAME, "arguments": {ARGUMENTS}}\n</tool_call>'

TEMPLATE = """\
{%- macro text_of(content) -%}
{%- if content is string -%}{{- content -}}
{%- elif content is iterable and content is not mapping -%}{%- for part in content -%}{%- if part.text is string -%}{{- part.text -}}{%- endif -%}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- set given = messages[0].role in ['system', 'developer'] if messages else false -%}
{%- if tools or given -%}
{{- '<|im_start|>system\\n' -}}
{%- if given -%}{{- text_of(messages[0].content) -}}{%- endif -%}
{%- if tools -%}
{%- if given -%}{{- '\\n\\n' -}}{%- endif -%}
{{- BEFORE -}}
{%- for tool in tools -%}{{- '\\n' -}}{{- tool | tojson -}}{%- endfor -%}
{{- AFTER -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role in ['system', 'developer'] -%}
{%- if not loop.first -%}{{- '<|im_start|>system\\n' -}}{{- text_of(message.content) -}}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- elif message.role == 'assistant' -%}
{{- '<|im_start|>assistant\\n' -}}
{%- set words = text_of(message.content) -%}
{{- words -}}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
{%- set function = call.function if call.function else call -%}
{%- if not loop.first or words -%}{{- '\\n' -}}{%- endif -%}
{{- '<tool_call>\\n{"name": ' -}}{{- function.name | tojson -}}{{- ', "arguments": ' -}}
{%- if function.arguments is string -%}{{- function.arguments -}}{%- else -%}{{- function.arguments | tojson -}}{%- endif -%}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' -}}{{- text_of(message.content) -}}{{- '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- else -%}
{{- '<|im_start|>' + message.role + '\\n' -}}{{- text_of(message.content) -}}{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""".replace("BEFORE", repr(TOOLS_BEFORE)).replace("AFTER", repr(TOOLS_AFTER))


def call_text(name, arguments):
    return '<tool_call>\n{"name": ' + json.dumps(name, ensure_ascii=False) + ', "arguments": ' + json.dumps(arguments, ensure_ascii=False) + "}\n</tool_call>"


def answer_text(message):
    """What the model itself writes for an assistant message, without the end mark."""
    parts = [message["content"]] if message.get("content") else []
    for call in message.get("tool_calls", []):
        parts.append(call_text(call["function"]["name"], call["function"]["arguments"]))
    return "\n".join(parts)


def render(messages, tools=None, dumps=None):
    """The conversation as [(text, learned)] pieces; `learned` pieces are what the model must write."""
    dumps = dumps or (lambda tool: json.dumps(tool, ensure_ascii=False))
    pieces, context = [], ""
    given = bool(messages) and messages[0]["role"] == "system"
    if tools or given:
        context = START + "system\n" + (messages[0]["content"] if given else "")
        if tools:
            context += ("\n\n" if given else "") + TOOLS_BEFORE + "".join("\n" + dumps(tool) for tool in tools) + TOOLS_AFTER
        context += END + "\n"
    for at, message in enumerate(messages):
        if message["role"] == "system":
            if at:
                context += START + "system\n" + message["content"] + END + "\n"
        elif message["role"] == "assistant":
            pieces.append((context + START + "assistant\n", False))
            pieces.append((answer_text(message) + END, True))
            context = "\n"
        elif message["role"] == "tool":
            if messages[at - 1]["role"] != "tool":
                context += START + "user"
            context += "\n<tool_response>\n" + message["content"] + "\n</tool_response>"
            if at + 1 == len(messages) or messages[at + 1]["role"] != "tool":
                context += END + "\n"
        else:
            context += START + message["role"] + "\n" + message["content"] + END + "\n"
    if context != "\n":
        pieces.append((context, False))
    return pieces
