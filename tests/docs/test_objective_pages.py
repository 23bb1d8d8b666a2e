"""docs/objectives.md and docs/methods: every name has its page, defaults are the real ones, and what is shown runs."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest
import torch

import sleuth.objectives
from sleuth.cli import run
from sleuth.diagnostics.names import is_known
from sleuth.errors import UserError
from sleuth.objectives import SCHEDULES, TABLE, resolve
from sleuth.recipes.loader import load_recipe

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "objectives.md"
METHODS = ROOT / "docs" / "methods"
PAGES = sorted(METHODS.glob("*.md"))
SETTING = re.compile(r"^\| `([a-z_0-9]+)\.([a-z_]+)` \| `([^`]+)` \|", re.MULTILINE)
COMMAND = re.compile(r"^ {4,}(sleuth .+)$", re.MULTILINE)


def commands(verb):
    """Each command line of these pages: (page, line)."""
    found = [(page, line) for page in [INDEX, *PAGES] for line in COMMAND.findall(page.read_text())]
    return [
        pytest.param(line, id=f"{page.stem}-{i}") for i, (page, line) in enumerate(found) if line.split()[1] == verb
    ]


def words(line):
    """The arguments of a command line and whether it is said to be refused."""
    return shlex.split(line, comments=True)[1:], "# refused" in line


def test_every_name_has_a_page_and_every_page_a_name():
    assert {page.stem for page in PAGES} == {*TABLE, *SCHEDULES, "sapo"}
    index = INDEX.read_text()
    for page in PAGES:
        assert f"](methods/{page.name})" in index, page
        assert f"`{page.stem}`" in page.read_text().splitlines()[0], page


@pytest.mark.parametrize("name", TABLE)
def test_a_page_has_every_parameter_with_its_default(name):
    text = (METHODS / f"{name}.md").read_text()
    assert TABLE[name].paper.split("arXiv ")[-1] in text
    shown = {key: default for part, key, default in SETTING.findall(text) if part == name}
    assert shown == {key: default for key, default, _ in TABLE[name].settings}


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_settings_and_metrics_that_a_page_names_exist(page):
    text = page.read_text()
    for part, key, value in re.findall(r"\b([a-z_0-9]+)\.([a-z_]+)=([^\s`,)]+)", text):
        if part in TABLE:
            needs = {"aggregation": {"max_length": 8}} if TABLE[part].aggregation == "sum_over_max_length" else {}
            value = {"true": True, "false": False, "null": None}.get(value, value)
            assert resolve(part, {part: {key: value}, **needs})
    metrics = re.findall(r"`((?:ratio|sequence|likelihood|advantage|share|calibadv|sspo|entropy)/[a-z0-9_./]+)`", text)
    assert [name for name in metrics if not is_known(name)] == []
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert "://" in link or (page.parent / link).exists(), link


@pytest.mark.parametrize("line", [*commands("replay"), *commands("objectives")])
def test_commands_without_a_model_run(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments, refused = words(line)
    assert not refused
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(arguments) == 0
    assert out.getvalue()


@pytest.mark.parametrize("line", commands("train"))
def test_commands_that_train_are_accepted(line):
    """As ``sleuth train`` takes them, up to the first rollout."""
    (_, recipe, *settings), refused = words(line)
    with pytest.raises(UserError) if refused else contextlib.nullcontext():
        loaded = load_recipe(recipe, settings)
        objective = resolve(loaded.objective, loaded.parameters, loaded.aggregation, loaded.trainer.kl_coefficient)
        objective.check_training(loaded.trainer.updates_per_batch)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=lambda page: page.stem
)
def test_code_of_a_page_runs(page):
    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1]])
    scope = {
        "advantages": torch.tensor([1.0, -1.0])[:, None] * mask,
        "mask": mask,
        "groups": torch.tensor([0, 0]),
        "rewards": torch.tensor([1.0, 0.0]),
        "documents": [[["a"]], [["a"]]],
        "old_logp": torch.full((2, 4), -1.0),
        "teacher_logp": torch.full((2, 4), -2.0),
    }
    before = scope["advantages"]
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, scope)
    assert not torch.equal(scope["advantages"], before)


def test_the_comparison_of_gradients_is_that_of_the_example(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    text = INDEX.read_text()
    names = re.search(r"--objective (grpo,\S+)", text)[1]
    assert run(["replay", "examples/replay/rollouts.jsonl", "--objective", names, "--json"]) == 0
    against = {d["b"]: d for d in json.loads(capsys.readouterr().out)["differences"] if d["a"] == "grpo"}
    rows = re.findall(r"^\| `(\w+)` \| (\d\.\d+) \| (\d\.\d+) \| ([\d.]+)% \|$", text, re.MULTILINE)
    assert [name for name, *_ in rows] == names.split(",")[1:]
    for name, cosine, norms, share in rows:
        assert float(cosine) == pytest.approx(against[name]["cosine"], abs=6e-4)
        assert float(norms) == pytest.approx(against[name]["norm_ratio"], abs=6e-4)
        assert float(share) == pytest.approx(against[name]["sign_differs"] * 100, abs=0.06)


def test_functions_for_a_loop_of_your_own_are_public():
    text = "".join(page.read_text() for page in PAGES)
    for name in re.findall(r"from sleuth\.objectives import (\w+)", text):
        assert name in sleuth.objectives.__all__
