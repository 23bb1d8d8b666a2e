"""YAML as a reader of recipes expects it: YAML 1.2's core schema, and no key twice.

PyYAML follows YAML 1.1, where ``lr: 1e-6`` is a string, ``no`` is false, ``012`` is ten, ``1:30`` is ninety. Here plain
``true``, ``false``, ``null``, decimal integers and floats are what they look like, and everything else is text; what
:func:`dump_yaml` writes, :func:`parse_yaml` reads back as the same value.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_CORE_SCHEMA: list[tuple[str, str, str]] = [
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    ("merge", r"^(?:<<)$", "<"),
]


class YamlError(ValueError):
    """Not YAML; the message is one line with line and column."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict = {}  # noqa: RUF012 (PyYAML's own class attribute)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        seen = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key_node.value!r} stands here twice", key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict = {}  # noqa: RUF012

    def represent_text(self, text: str) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)
for _class in (_Loader, _Dumper):
    for _name, _pattern, _first in _CORE_SCHEMA:
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(_pattern), ["" if c == "\0" else c for c in _first]
        )


def parse_yaml(text: str) -> Any:
    """The value of one YAML document.

    Raises:
        YamlError: not YAML, an unknown tag, or a mapping with the same key twice.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlError(f"{where}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(" ".join(str(error).split())) from None


def dump_yaml(value: Any) -> str:
    """``value`` (mappings, lists, text, numbers, true, false, None) as YAML, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
