"""What the model says: the replies of every scenario, and the template that chooses among them.

The servers under test are real, and a real model's words cannot be relied on. So the model here is a table: each token has
one successor (`gguf_model.py` and `hf_model.py` write the table as weights). The template, which every server runs on each
request, looks at the conversation and ends the prompt with the token at which the fitting reply starts."""

END = "<|im_end|>"


def call(name, arguments):
    """A call as the model writes it, in the format of Hermes and Qwen, which the servers read."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


REPLIES = {
    "text": "Hello from the model.",
    "rome": call("weather", '{"city": "Rome"}'),
    "oslo-and-bern": "<think>\nTwo cities are left.\n</think>\n\nI look at both.\n" + call("weather", '{"city": "Oslo"}') + "\n" + call("weather", '{"city": "Bern"}'),
    "clear": "It is clear everywhere.",
    "search": call("search", '{"query": "toolrein"}'),
    "nothing": "I could not find it.",
    "delete": call("weather", '{"city": "Lima"}') + "\n" + call("delete_file", '{"path": "notes.txt"}'),
    "kept": "The file is still there.",
    "pay": call("pay", '{"to": "Ann", "amount": 250}'),
    "paid": "Ann has her money.",
}

# The rules: the tag in the user's message that begins the scenario, and which reply follows. `results` counts the results since
# then, `last` is the newest message. The model of "find" is content with any result that the tool did not give; that of
# "stubborn" never is. Like a small model it does not know that tool calls are forbidden as long as it sees tools.
CHOOSE = """
{%- if topic.name == '[weather]' -%}
    {%- if topic.results == 0 and tools -%}{{ START['rome'] }}
    {%- elif topic.results == 1 and tools -%}{{ START['oslo-and-bern'] }}
    {%- else -%}{{ START['clear'] }}{%- endif -%}
{%- elif topic.name == '[find]' -%}
    {%- if tools and (topic.results == 0 or topic.last == 'nothing found') -%}{{ START['search'] }}
    {%- else -%}{{ START['nothing'] }}{%- endif -%}
{%- elif topic.name == '[stubborn]' -%}
    {%- if tools -%}{{ START['search'] }}{%- else -%}{{ START['nothing'] }}{%- endif -%}
{%- elif topic.name == '[delete]' -%}
    {%- if topic.results == 0 and 'delete_file' in tools | tojson -%}{{ START['delete'] }}{%- else -%}{{ START['kept'] }}{%- endif -%}
{%- elif topic.name == '[pay]' -%}
    {%- if topic.results == 0 and tools -%}{{ START['pay'] }}{%- else -%}{{ START['paid'] }}{%- endif -%}
{%- else -%}{{ START['text'] }}{%- endif -%}
"""
TAGS = ["[weather]", "[find]", "[stubborn]", "[delete]", "[pay]"]


def choose(items, tools):
    """The same rules in Python, for recorded replies: `items` are pairs of a role and a text, `tools` the declarations as text."""
    topic, results, last = "", 0, ""
    for role, last in items:
        if role == "tool":
            results += 1
        for tag in TAGS if role == "user" else ():
            if tag in last:
                topic, results = tag, 0
    return {
        "[weather]": ("rome" if results == 0 else "oslo-and-bern" if results == 1 else "clear") if tools else "clear",
        "[find]": "search" if tools and (results == 0 or last == "nothing found") else "nothing",
        "[stubborn]": "search" if tools else "nothing",
        "[delete]": "delete" if results == 0 and "delete_file" in tools else "kept",
        "[pay]": "pay" if results == 0 and tools else "paid",
    }.get(topic, "text")


def start(reply):
    """The token after which `reply` follows. Prompts end with it."""
    return f"<|say:{reply}|>"


# Hermes' format, so that llama.cpp and vLLM recognise how calls are written.
CONVERSATION = """
{%- if tools -%}
<|im_start|>system
{%- if messages and messages[0].role == 'system' %}
{{ messages[0].content }}
{%- endif %}

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif -%}
{%- set topic = namespace(name='', results=0, last='') -%}
{%- for message in messages -%}
    {%- if message.content is string -%}{%- set topic.last = message.content -%}{%- else -%}{%- set topic.last = '' -%}{%- endif -%}
    {%- if message.role == 'tool' -%}
        {%- set topic.results = topic.results + 1 -%}
        {{- '<|im_start|>user\\n<tool_response>\\n' + topic.last + '\\n</tool_response><|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- if message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
        {{- topic.last -}}
        {%- if message.tool_calls -%}
            {%- for tool_call in message.tool_calls -%}
                {{- '\\n<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' -}}
                {{- tool_call.function.arguments if tool_call.function.arguments is string else tool_call.function.arguments | tojson -}}
                {{- '}\\n</tool_call>' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '<|im_end|>\\n' -}}
    {%- else -%}
        {%- if message.role == 'user' -%}
            {%- for tag in TAGS -%}
                {%- if tag in topic.last -%}{%- set topic.name = tag -%}{%- set topic.results = 0 -%}{%- endif -%}
            {%- endfor -%}
        {%- endif -%}
        {%- if message.role != 'system' or not tools or not loop.first -%}
            {{- '<|im_start|>' + message.role + '\\n' + topic.last + '<|im_end|>\\n' -}}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
"""


def template():
    """The chat template, as Jinja."""
    choose = CHOOSE.replace("\n", "")
    for reply in REPLIES:
        choose = choose.replace(f"{{{{ START['{reply}'] }}}}", f"{{{{- '{start(reply)}' -}}}}")
    return CONVERSATION.replace("TAGS", repr(TAGS)).lstrip("\n") + choose + "{%- endif -%}"


def thoughtful(text):
    """The reply with an empty thought before it, as Qwen3 writes where it does not think: to vLLM's parser of Qwen3's replies, a text
    without the end of a thought is nothing but a thought."""
    return text if text.startswith("<") else "<think>\n\n</think>" + text


def pieces(edit=lambda text: text):
    """The table: the starting token and the pieces of each reply, which `edit` may change. No piece occurs twice, since a piece has one
    successor."""
    table, used = {}, set(byte_letters().values())
    for reply, text in REPLIES.items():
        text = edit(text)
        chain, at = [], 0
        while at < len(text):
            size = 3
            while text[at:at + size] in used and at + size < len(text):
                size += 1
            piece = text[at:at + size]
            while piece in used:  # only the end of a text can be too short to be new: the last pieces become one
                piece = chain.pop() + piece
            used.add(piece)
            chain.append(piece)
            at += size
        table[start(reply)] = chain
    return table


def vocabulary(edit=lambda text: text):
    """All tokens, by id: the single bytes, as byte-level tokenizers write them, then the special ones, then the pieces."""
    special = ["<|endoftext|>", "<|im_start|>", END, *map(start, REPLIES)]
    return list(byte_letters().values()), special, [piece for chain in pieces(edit).values() for piece in chain]


def successors(edit=lambda text: text):
    """Which token follows which: pairs of texts."""
    for first, chain in pieces(edit).items():
        yield from zip([first, *chain], [*chain, END])


def byte_letters():
    """The letter that stands for each byte in the vocabulary of GPT-2 and its descendants."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in kept]
    letters = {byte: chr(byte) for byte in kept} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return dict(sorted(letters.items()))
