"""Conversations as texts: a tokenizer's chat template, a program in Jinja that writes them as its model knows them.

    {% for message in messages %}<|im_start|>{{ message.role }}
    {{ message.content }}<|im_end|>
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {% endif %}

The program may come from a stranger. It runs in Jinja's sandbox, as in `transformers`, where it sees the conversation
and nothing else. How long it runs is not bounded.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import PretrainedError

if [*map(int, re.findall("[0-9]+", version("jinja2")))] < [3, 1, 6]:
    raise ImportError("older sandboxes have known holes")


class _Generation(Extension):
    """The tag around what an assistant says, which asks `transformers` to tell where that stands; here it is text."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def render(
    template: str, messages: Sequence[Mapping[str, Any]], marks: Mapping[str, str], add_generation_prompt: bool
) -> str:
    """Return a conversation as a text; marks are the special tokens by name: `bos_token`, `eos_token`.

    Raises ValueError for what is no conversation, and PretrainedError for a template that is damaged, that refuses this
    conversation, or that tries to leave the sandbox.
    """
    if isinstance(messages, str) or not messages or not all(isinstance(each, Mapping) for each in messages):
        raise ValueError('a conversation is a list such as [{"role": "user", "content": "Hello"}], not empty')
    try:
        plain = [{k: v for k, v in message.items() if v is not None} for message in json.loads(json.dumps(messages))]
        scope = {**marks, "tools": None, "documents": None, "add_generation_prompt": add_generation_prompt}
        return _compiled(template).render(messages=plain, **scope)
    except Exception as error:  # Jinja's own, and whatever a program can raise
        message = " ".join(str(error).split()) or type(error).__name__
        raise PretrainedError(f"the chat template can't write this conversation: {message}") from None


@lru_cache(maxsize=1)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _as_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment.from_string(template)


def _as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter escapes what has a meaning in HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
