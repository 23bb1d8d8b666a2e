"""The file itself, without a browser."""

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from sleuth.report.collect import collect
from sleuth.report.page import bundle, render
from sleuth.report.rollout_rows import pack, unpack
from sleuth.rollouts import write_rollouts

from .conftest import batch

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)"><!-- ]]> \u2028'


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_nothing_that_others_wrote_is_markup(tmp_path, example):
    rollouts = batch(example, 1)
    for rollout in rollouts:
        rollout.question = rollout.answer = rollout.id = HOSTILE + rollout.id
        rollout.golden_answers = [HOSTILE]
        for span in rollout.spans:
            span.text = HOSTILE
            for document in span.documents:
                document.title = document.text = HOSTILE
    folder = tmp_path / "<img src=x>"
    write_rollouts(folder / "rollouts.jsonl", rollouts)
    page = render(collect(folder / "rollouts.jsonl"))
    assert "alert(" not in page
    tags = [tag for tag, _ in Elements(page).found]
    assert "img" not in tags
    assert tags.count("script") == 4  # the overview, one block, the library, the page's own


def test_a_title_is_text(run_folder):
    data = collect(run_folder) | {"title": "<img src=x onerror=alert(1)>"}
    assert "<img" not in render(data)


def test_the_policy_names_the_scripts_and_the_style_by_their_hashes_and_nothing_else(run_folder):
    page = render(collect(run_folder))
    policy = next(attrs["content"] for tag, attrs in Elements(page).found if attrs.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for names, texts in ((rules["script-src"], scripts), (rules["style-src"], styles)):
        hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts]
        assert names.split() == hashes


def test_nothing_is_fetched_from_elsewhere(run_folder):
    for tag, attrs in Elements(render(collect(run_folder))).found:
        assert tag not in ("link", "iframe", "object", "embed")
        assert "src" not in attrs
        assert attrs.get("href", "#").startswith("#")


def test_the_page_is_made_of_no_sink_for_markup():
    sources = [file for file in files("sleuth.report").joinpath("page").iterdir() if file.name.endswith(".js")]
    assert len(sources) > 10
    for file in sources:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), file


def test_every_import_of_the_page_names_what_its_module_exports():
    folder = files("sleuth.report").joinpath("page")
    for file in folder.iterdir():
        if not file.name.endswith(".js"):
            continue
        text = file.read_text(encoding="utf-8")
        for names, module in re.findall(r'import \{ (.*?) \} from "\./([\w.]+)";', text):
            exported = re.findall(
                r"^export (?:async )?(?:function|class|const) (\w+)",
                folder.joinpath(module).read_text(encoding="utf-8"),
                re.MULTILINE,
            )
            assert set(names.split(", ")) <= set(exported), f"{file.name} from {module}"


def test_no_import_or_export_is_left_in_the_page():
    assert not re.search(r"^\s*(import|export) ", bundle(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_is_sound_javascript(tmp_path):
    (tmp_path / "page.js").write_text(bundle())
    done = subprocess.run(["node", "--check", str(tmp_path / "page.js")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_library_comes_with_its_version_and_licence():
    vendor = files("sleuth.report").joinpath("vendor", "uplot")
    version = vendor.joinpath("VERSION").read_text(encoding="utf-8").split(",")[0].split()[1]
    assert f"(v{version})" in vendor.joinpath("uPlot.iife.min.js").read_text(encoding="utf-8")[:200]
    assert "Permission is hereby granted" in vendor.joinpath("LICENSE").read_text(encoding="utf-8")
    assert f"UPLOT={version}" in files("sleuth.report").joinpath("vendor", "renew.sh").read_text(encoding="utf-8")


def test_packing_is_exact_and_the_same_each_time():
    value = {"text": HOSTILE + "\ud800 😀", "numbers": [1, 2.5, None]}
    assert unpack(pack(value)) == value
    assert pack(value) == pack(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", pack(value))


def test_text_on_the_page_stands_out_enough_in_light_and_dark():
    """WCAG AA: 4.5 : 1 for text."""
    css = files("sleuth.report").joinpath("page", "look.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css.split(':root[data-theme="dark"]')[0]))
    dark = light | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css.split(':root[data-theme="dark"]')[1]))
    for colours in (light, dark):
        for ink in ("ink", "muted", "accent", "good", "bad", "early", "late", "dead"):
            for ground in ("page", "panel"):
                assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground, colours[ink], colours[ground])


def _contrast(a, b):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
