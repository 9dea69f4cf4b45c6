//! An output of each format of tool calls, written by hand. Their deltas are in `tool_call_formats.rs`.

/// By format.
pub const OUTPUTS: &[(&str, &str)] = &[
    (
        "apertus",
        r#"<|tools_prefix|>[{"get_weather": {"city": "Bern"}}, {"add": {"numbers": [1, 2.50]}}]<|tools_suffix|>"#,
    ),
    (
        "command-a",
        "<|START_THINKING|>I need it.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"add\", \"parameters\": {}}\n]<|END_ACTION|>",
    ),
    (
        "command-r",
        "I will look.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": {\"city\": \"Bern\"}\n    }\n]```\n",
    ),
    (
        "deepseek-v3",
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"a ``` b\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "deepseek-v3.1",
        r#"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Bern"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"numbers": []}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"#,
    ),
    (
        "deepseek-v3.2",
        "Look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">42 </｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">42</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "ernie",
        "<think>\nSure.\n</think>\n\n<response>\nHere.\n</response>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n",
    ),
    ("firefunction", r#"Hi functools[{"name": "get_weather", "arguments": {"city": "Bern"}}]"#),
    (
        "function-gemma",
        r#"<start_function_call>call:get_weather{city:<escape>a, "b"}<escape>,days:3}<end_function_call>"#,
    ),
    ("functionary-v3.1", r#"<function=get_weather>{"city": "Bern"}</function><function=add>{}</function>"#),
    ("functionary-v3.2", "all\nLet me look.>>>get_weather\n{\"city\": \"Bern\"}>>>add\n{\"numbers\": [1]}"),
    ("gemma", "Sure:\n```tool_code\nget_weather(city=\"Bern\", days=2)\nadd(numbers=[1, 2])\n```\nDone."),
    (
        "gemma-4",
        "<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|\"|>a {b}, \"c\"<|\"|>,days:-1,exact:true}<tool_call|><|tool_call>call:add{numbers:[1,2.5],options:{<|\"|>k<|\"|>:<|\"|>v<|\"|>,n:null}}<tool_call|>",
    ),
    ("gigachat", r#"Look.<|function_call|>{"name": "get_weather", "arguments": {"city": "Bern"}}"#),
    (
        "glm",
        "<think>hm</think>Look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>42</arg_value>\n<arg_key>days</arg_key>\n<arg_value>42</arg_value>\n</tool_call>\n<tool_call>add<arg_key>numbers</arg_key><arg_value>[1, 2]</arg_value><arg_key>other</arg_key><arg_value>a < b</arg_value></tool_call>",
    ),
    (
        "granite",
        r#"<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Bern"}}, {"name": "add", "arguments": {}}]"#,
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>",
    ),
    (
        "hermes",
        "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Z\\u00fcrich\", \"days\" : 2}}\n</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"add\"}</tool_call>",
    ),
    (
        "hunyuan",
        "<think>\nhm\n</think>\n<answer>\nLook.\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}]</tool_calls>\n</answer>",
    ),
    (
        "hunyuan-3",
        "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Bern</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>add<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
    ),
    (
        "internlm",
        "Look.<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}<|action_end|>\n",
    ),
    (
        "json",
        "```json\n[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}, {\"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": \"{\\\"numbers\\\": [1]}\"}}]\n```",
    ),
    (
        "kimi-k2",
        r#"Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Bern"}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"#,
    ),
    (
        "kimi-k3",
        r#"<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>42<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>42<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"#,
    ),
    (
        "lfm2",
        "<|tool_call_start|>[get_weather(city=\"it's \\\"x\\\"\", days=2), add(numbers=[1, 2.5], options={\"a\": None}), add()]<|tool_call_end|>Looking.",
    ),
    (
        "llama-3",
        r#"{"name": "get_weather", "parameters": {"city": "Bern"}}; {"name": "add", "parameters": {}}"#,
    ),
    ("llama-4", "[get_weather(city='Bern', exact=True), add(numbers=[])]"),
    (
        "longcat",
        "<longcat_tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</longcat_tool_call>",
    ),
    (
        "minicpm-5",
        "<function name=\"get_weather\"><param name=\"city\"><![CDATA[a </param> b]]></param><param name=\"days\">3</param></function>\n<function name=\"add\"></function>",
    ),
    (
        "minimax-m2",
        "<think>hm</think>\nLook.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n<parameter name=\"exact\">false</parameter>\n</invoke>\n<invoke name=\"add\">\n</invoke>\n</minimax:tool_call><think>more</think>Done.",
    ),
    (
        "minimax-m3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"add\">]<]minimax[>[<numbers>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[<item>2.5]<]minimax[>[</item>]<]minimax[>[</numbers>]<]minimax[>[<options>]<]minimax[>[<a>x]<]minimax[>[</a>]<]minimax[>[</options>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        "mistral",
        r#"[THINK]hm[/THINK]Look.[TOOL_CALLS]get_weather[CALL_ID]abc123[ARGS]{"city": "Bern"}[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS] [{"name": "add", "arguments": {"numbers": [1]}, "id": "xyz"}]"#,
    ),
    (
        "muse",
        " to=self<|message|>hm<|eom|><|start|>assistant to=get_weather<|message|><atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">Bern</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=user<|message|>Done.<|eot|>",
    ),
    (
        "nemotron",
        r#"<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Bern"}}, {"name": "add", "arguments": {}}]</TOOLCALL>"#,
    ),
    ("olmo-3", "Look.\n<function_calls>\nget_weather(city=\"Bern\")\nadd(numbers=[1, 2])\n</function_calls>"),
    ("phi-4", r#"<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Bern"}}]<|/tool_call|>"#),
    (
        "qwen3-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n42\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=x>\n</parameter>\n</function>\n</tool_call>\nDone.",
    ),
    (
        "seed-oss",
        "<seed:think>hm</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern\n</parameter>\n<parameter=exact>True</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=add>\n<parameter=options>{'round': True, 'n': None}</parameter>\n</function>\n</seed:tool_call>",
    ),
    (
        "solar",
        r#"<|think|>hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>ab12<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Bern"}<|tool_call:end|><|tool_call:begin|>cd34<|tool_call:name|>add<|tool_call:args|>{}<|tool_call:end|><|calls|>"#,
    ),
    (
        "step-3",
        r#"Look.<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather"><steptml:parameter name="city">Bern</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="add"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>"#,
    ),
    (
        "tool-call-text",
        "Look.\nTOOL_CALL: {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\nTOOL_CALL: add({\"numbers\": [1]})\nNot TOOL_CALL: {\"name\": \"add\"}",
    ),
    (
        "tool-calls",
        "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n{\"name\": \"add\", \"arguments\": {}}\n</tool_calls>\n<tool_calls>[{\"name\": \"add\", \"arguments\": {}, \"id\": \"call1\"}]</tool_calls>",
    ),
    ("xlam", r#"[{"name": "get_weather", "arguments": {"city": "Bern"}}, {"name": "add", "arguments": {}}]"#),
];
