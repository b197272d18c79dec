"""Chat templates that do what those of published models do with texts, and one that uses more of Jinja."""

CHATML = """\
{% for message in messages %}{% if loop.first and message['role'] != 'system' %}{{ '<|im_start|>system
Answer in short.<|im_end|>
' }}{% endif %}{{ '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>
' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
"""As SmolLM2 and Qwen 2: a line of the system's own where nobody gives one, and every message between two marks."""

HEADERS = """\
{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}

{#- A message of the system goes into the head. #}
{%- set head = messages[0].content | trim if messages[0].role == 'system' else '' %}
{%- set messages = messages[1:] if head else messages %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + strftime_now("%d %b %Y") + '\\n\\n' + head }}
{{- 'With tools.' if tools is not none else '' }}{{- '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
"""As Llama 3: the date, and a message of the system in its place."""

INSTRUCTIONS = """\
{%- set turns = messages[1:] if messages[0]['role'] == 'system' else messages %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant must take turns') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- set before = messages[0]['content'] + '\\n\\n' if loop.last and turns | length < messages | length %}
        {{- '[INST] ' + (before or '') + message['content'].strip() + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""
"""As Llama 2 and Mistral: turns that must alternate, the system's message in one of the user's, no line to answer."""

TURNS = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif -%}
{%- for message in messages -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '
' }}
    {%- if message.content is string -%}
        {{ message.content | trim }}
    {%- elif message.content is iterable -%}
        {%- for part in message.content -%}{{ part['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception('neither a text nor parts') }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model
' }}{%- endif -%}
"""
"""As Gemma: another name of the assistant, and no message of the system."""

THOUGHTS = """\
{%- set seen = namespace(last=messages | length - 1, search=true) %}
{%- for message in messages[::-1] %}
    {%- if seen.search and message.role == 'user' and message.content is string %}
        {%- set seen.search = false %}
        {%- set seen.last = messages | length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set said, thought = message.content, '' %}
    {%- if message.role == 'assistant' and '</think>' in said %}
        {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
        {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {{- '<think>\\n' + thought + '\\n</think>\\n\\n' if thought and loop.index0 > seen.last else '' }}
    {{- said + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and enable_thinking is false else '' }}
{%- endif %}"""
"""As Qwen 3: of what the assistant thought, only what came after the user's last message is kept."""

MORE_OF_JINJA = """\
{# SmolLM3 marks what the assistant says. #}
{%- macro written(message) -%}
    {{ message.role | upper }}: {{ message | tojson }} {{ [message.content, "<é>"] | tojson(indent=1) }}
{%- endmacro %}
{%- for message in messages %}
    {%- if message.role == "system" %}
        {%- continue %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {% generation %}
            {%- set inner = message.content %}
            {{- inner ~ eos_token }}
        {% endgeneration %}
        {{- inner is defined }} {{ message.name is defined }}
    {%- else %}
        {{- written(message) }}
    {%- endif %}
    {%- if loop.index > 4 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{{ dict(a=1).a }} {{ unk_token }} {{ documents is none }} {{ strftime_now("%Y") }} {{ sep_token is defined }}
{{ "and so on" if add_generation_prompt }}
"""

TEMPLATES = {
    "ChatML": (CHATML, "<|im_end|>"),
    "headers": (HEADERS, "<|eot_id|>"),
    "instructions": (INSTRUCTIONS, "</s>"),
    "turns": (TURNS, "<end_of_turn>"),
    "thoughts": (THOUGHTS, "<|im_end|>"),
    "more of Jinja": (MORE_OF_JINJA, "</s>"),
}
"""Each with the mark that it puts after an answer."""

MARKS = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
MARKS += ["<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"]
"""The special tokens of these templates."""
