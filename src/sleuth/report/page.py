"""Puts the page together: one file, its scripts and styles inlined, allowed by their hashes and nothing else.

The sources in ``page/`` are modules of the language. A page that is opened from disk may load no file beside it, so
they become one script here; their imports and exports are what this needs to know of them.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from sleuth.report.rollout_rows import pack

STYLES = ("look.css", "frame.css", "viewer.css")
ENTRY = "main.js"

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
# A parser of HTML looks for these inside a script, wherever they stand.
_ENDS_SCRIPT = re.compile(r"</script|<!--|<script", re.IGNORECASE)


def render(data: Mapping[str, Any], *, live: int | None = None) -> str:
    """The report as HTML.

    Args:
        data: of :func:`sleuth.report.collect.collect`.
        live: seconds after which the page loads itself anew, for a run that goes on.

    Text of models and retrievers is in the page as base64 alone, which no parser of HTML can take for anything else;
    the page writes it as text nodes. The page's policy lets nothing run but its own two scripts, and nothing load.
    """
    style = f"{_read('vendor/uplot/uPlot.min.css')}\n" + "\n".join(_read(f"page/{name}") for name in STYLES)
    vendor, script = _read("vendor/uplot/uPlot.iife.min.js"), bundle()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(vendor)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )
    rollouts = data.get("rollouts")
    blocks = rollouts["blocks"] if rollouts else []
    overview = {**data, "live": live}
    if rollouts:
        overview["rollouts"] = {name: value for name, value in rollouts.items() if name != "blocks"}
    return _read("page/index.html") % {
        "policy": policy,
        "title": html.escape(f"{data['title']} · Sleuth"),
        "style": style,
        "vendor": vendor,
        "script": script,
        "data": "\n".join(
            [_data("overview", pack(overview)), *(_data(f"block-{i}", block) for i, block in enumerate(blocks))]
        ),
    }


def bundle() -> str:
    """The page's own script: every module once, after those that it imports, each in a scope of its own."""
    modules: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in modules:
            return
        source = _read(f"page/{name}")
        for _, imported in _IMPORT.findall(source):
            visit(imported)
        exported = ", ".join(name for _, name in _EXPORT.findall(source))
        body = _IMPORT.sub(lambda match: f"const {match[1]} = {_module(match[2])};", source)
        body = _EXPORT.sub(r"\1", body)
        modules[name] = f"const {_module(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"

    visit(ENTRY)
    script = '"use strict";\n' + "\n".join(modules.values())
    if _ENDS_SCRIPT.search(script):
        raise AssertionError("a script of the page holds what would end its element")
    return script


def _module(name: str) -> str:
    return "module_" + name.removesuffix(".js")


def _data(name: str, packed: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files("sleuth.report").joinpath(name).read_text(encoding="utf-8")
