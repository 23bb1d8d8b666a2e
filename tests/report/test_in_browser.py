"""The page in real headless Chromium."""

import copy
import dataclasses
import json
import re

import pytest

from sleuth.lab.comparison import Comparison
from sleuth.lab.results import Result, Status
from sleuth.report.collect import collect
from sleuth.report.page import render
from sleuth.report.rollouts import Options
from sleuth.report.sources import find_source
from sleuth.report.write import write_report
from sleuth.rollouts import write_rollouts
from sleuth.types import EndReason
from sleuth.types import Status as RolloutStatus

from .conftest import EXAMPLE, batch, make_run

pytest.importorskip("playwright", reason="playwright is not installed (extra: dev)")

INK = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  }
  return [...colours];
}"""
"""Colours that a canvas has been drawn with."""


NAMELESS = """() => {
  const said = (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby");
  const named = (node) => said(node) || node.labels?.length || node.textContent.trim();
  const wanted = "main :is(button, a, input, select, [role=img], [role=region]), header button:not([hidden])";
  return [...document.querySelectorAll(wanted)].filter((node) => !named(node)).map((node) => node.outerHTML);
}"""
"""Elements that need a name and have none."""

UNREACHABLE = """() => [...document.querySelectorAll(".scroll")]
  .filter((node) => node.scrollWidth > node.clientWidth && node.tabIndex < 0)
  .map((node) => node.outerHTML)"""
"""What scrolls sideways and can't be reached by keys."""

BLOCKED = """(attempt) => new Promise((done) => {
  addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective), { once: true });
  if (attempt === "script") {
    const script = document.createElement("script");
    script.append("window.ran = true");
    document.body.append(script);
  }
  if (attempt === "request") fetch("https://example.org").catch(() => {});
  if (attempt === "image") document.body.append(Object.assign(new Image(), { src: "https://example.org/x.png" }));
  if (attempt === "form") {
    const form = Object.assign(document.createElement("form"), { action: "https://example.org" });
    document.body.append(form);
    form.submit();
  }
  setTimeout(() => done("allowed"), 3000);
})"""
"""The rule of the page's policy that stops an attempt."""


@pytest.fixture(scope="module")
def run_report(tmp_path_factory, example):
    """The report of a run, made once."""
    folder = make_run(tmp_path_factory.mktemp("run") / "collapse", example)
    write_report(find_source(folder), folder / "report.html")
    return folder / "report.html"


def rgb(colour):
    return ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))


# Charts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("section", "least"), [("overview", 6), ("drift", 8), ("metrics", 1)])
def test_every_chart_is_drawn_and_marks_the_alarm(open_report, run_report, section, least):
    report = open_report(run_report, section)
    dead = rgb(report.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--dead')"))
    charts = report.page.locator("figure.chart")
    assert charts.count() >= least
    for i in range(charts.count()):
        figure = charts.nth(i)
        colours = figure.locator("canvas").evaluate(INK)
        assert dead in colours, figure.inner_text()
        assert len(colours) > 20


def test_a_chart_says_in_words_and_in_a_table_what_it_shows(open_report, run_report):
    report = open_report(run_report, "overview")
    figure = report.page.locator("figure.chart", has_text="Gradient norm")
    words = figure.get_by_role("img").get_attribute("aria-label")
    assert re.search(r"grad_norm from 0\.3 at step 1 to 3\.3\d at step 20", words)
    assert "Alarms at step 2." in words
    figure.get_by_text("Numbers").click()
    assert figure.locator("tbody tr").count() == 20
    assert figure.locator("tbody tr").last.inner_text().split()[0] == "20"


def test_a_line_can_be_hidden_and_the_splits_statistic_chosen(open_report, run_report):
    report = open_report(run_report, "drift")
    tails = report.page.locator("figure.chart", has_text="Ratio, positive advantage")
    before = tails.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    tails.get_by_text("q99").click()
    assert tails.locator("canvas").evaluate("canvas => canvas.toDataURL()") != before
    report.page.select_option("#statistic", "max")
    splits = report.page.locator("figure.chart", has_text="By turn, positive advantage")
    assert "highest" in splits.inner_text()
    assert "turn 6+" in splits.inner_text()


def test_every_metric_can_be_found_and_drawn(open_report, run_report):
    report = open_report(run_report, "metrics")
    report.page.fill("#metric-search", "query tokens negative q01")
    assert report.page.locator(".metrics tbody tr").count() == 1
    report.page.get_by_role("button", name="ratio/neg/query/q01").click()
    assert report.page.locator("#metric-chart h3").inner_text() == "ratio/neg/query/q01"
    report.page.fill("#metric-search", "my_own")
    assert "not in the catalogue" in report.page.locator(".metrics tbody").inner_text()


def test_an_alarm_leads_to_its_rollouts(open_report, run_report, example):
    report = open_report(run_report, "overview")
    report.page.locator(".alarm a").first.click()
    report.page.wait_for_selector(".detail .where")
    assert f"2-{example[0].id}" in report.asked()
    assert "⚑" in report.asked()


# The list ------------------------------------------------------------------------------------------------------------


def test_filters_keep_what_they_say(open_report, tmp_path, example):
    folder = make_run(tmp_path / "run", example)
    rollouts = batch(example, 3)
    rollouts[0].status, rollouts[0].answer, rollouts[0].reward = RolloutStatus.TRUNCATED, None, 0.0
    rollouts[0].end = EndReason.MAX_TOKENS
    rollouts[1].format_valid = False
    rollouts[2].reward = 0.25
    write_rollouts(folder / "rollouts" / "step-000003.jsonl.zst", rollouts)
    write_report(find_source(folder), folder / "report.html")
    report = open_report(folder / "report.html", "rollouts")
    page = report.page
    every = [r for step in (1, 2) for r in batch(example, step)] + rollouts

    def expect(kept):
        assert report.found().startswith(f"{len(kept)} rollout")
        shown = page.locator(".rows tbody tr[data-key]").evaluate_all("rows => rows.map(row => row.dataset.key)")
        assert sorted(shown) == sorted(f"{r.step}/{r.id}" for r in kept)
        page.get_by_role("button", name="Clear filters").click()
        assert report.found() == "24 rollouts"

    page.select_option("[name=status]", "truncated")
    expect([rollouts[0]])
    page.fill("[name=low]", "0.2")
    page.fill("[name=high]", "0.3")
    expect([rollouts[2]])
    page.fill("[name=from]", "3")
    expect(rollouts)
    page.fill("[name=to]", "1")
    expect(batch(example, 1))
    page.select_option("[name=alarm]", "0")
    expect([r for r in every if r.id in (f"2-{example[0].id}", f"2-{example[1].id}")])
    page.select_option("[name=form]", "invalid")
    expect([rollouts[1]])
    passage = example[0].spans[2].documents[0].text
    page.fill("#search", f"{passage[:12].upper()} {example[0].id}")
    holding = [r for r in every if example[0].id in r.id]
    expect(holding)


def test_sorting_is_told_and_puts_missing_values_last(open_report, tmp_path, example):
    rollouts = batch(example, 1)
    for i, rollout in enumerate(rollouts):
        rollout.reward = [0.5, 0.25, 0.75, 1.0, 0.0, 0.1, 0.9, None][i]
    rollouts[7].status, rollouts[7].end, rollouts[7].error = (
        RolloutStatus.RETRIEVER_FAILED,
        EndReason.RETRIEVER_FAILED,
        "gone",
    )
    write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    write_report(find_source(tmp_path / "rollouts.jsonl"), tmp_path / "report.html")
    page = open_report(tmp_path / "report.html").page
    rewards = page.locator(".rows .reward")
    page.locator("th[data-sort=reward] button").click()
    assert page.locator("th[data-sort=reward]").get_attribute("aria-sort") == "descending"
    assert rewards.all_inner_texts() == ["1", "0.9", "0.75", "0.5", "0.25", "0.1", "0", "–"]
    page.locator("th[data-sort=reward] button").click()
    assert rewards.all_inner_texts() == ["0", "0.1", "0.25", "0.5", "0.75", "0.9", "1", "–"]
    page.select_option("[name=sort]", "lowest")
    assert page.locator("th[data-sort=lowest]").get_attribute("aria-sort") == "ascending"


def test_everything_works_by_keys(open_report, run_report, example):
    report = open_report(run_report, "rollouts")
    page = report.page

    keys = [f"{step}/{step}-{rollout.id}" for step in (1, 2) for rollout in example]
    for key, place in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
        page.keyboard.press(key)
        report.current(keys[place])
    report.asked(keys[0][2:])
    page.keyboard.press("ArrowRight")
    report.current(keys[1])
    report.asked(keys[1][2:])
    assert "Rollout 1 of 16" in page.inner_text("#spoken")
    shade = page.locator(".shades input:checked").get_attribute("value")
    page.keyboard.press("s")
    assert page.locator(".shades input:checked").get_attribute("value") != shade
    page.keyboard.press("c")
    page.wait_for_selector(".compare")
    assert page.locator(".compare .column").count() == 4
    page.keyboard.press("c")
    page.wait_for_selector(".why")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("jk?")
    assert page.input_value("#search") == "jk?"
    assert page.evaluate("decodeURIComponent(location.hash)") == f"#rollouts/{keys[1]}"
    page.fill("#search", "")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") != "search"
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.wait_for_url("**#rollouts")
    page.keyboard.press("1")
    page.wait_for_selector("body[data-section=overview]")


# One rollout ---------------------------------------------------------------------------------------------------------


def test_a_rollout_shows_its_question_siblings_turns_hits_and_reward(open_report, run_report, example):
    rollout = example[0]
    report = open_report(run_report, f"rollouts/1%2F1-{rollout.id}")
    page = report.page
    assert page.inner_text(".detail h2") == rollout.question
    assert page.locator(".siblings .card").count() == 4
    assert page.locator(".siblings [aria-current]").inner_text().splitlines()[0] == "1"
    turns = page.locator(".turn")
    assert turns.count() == len(rollout.turns)
    for i, turn in enumerate(rollout.turns):
        assert turns.nth(i).locator(".policy").evaluate("node => node.textContent") == turn.policy.text
        if turn.observation:
            assert turn.policy.action.query in turns.nth(i).locator("summary").first.inner_text()
            assert turns.nth(i).locator(".hit").count() == len(turn.observation.documents)
    marks = page.locator(".passage mark")
    assert marks.count() >= 1
    assert set(marks.all_inner_texts()) == {rollout.golden_answers[0]}
    why = page.inner_text(".why")
    assert "reward 1" in why
    assert "✓ same" in why


def test_tokens_are_shaded_by_their_numbers(open_report, run_report, example):
    rollout = next(r for r in example if r.reward == 1.0)
    report = open_report(run_report, f"rollouts/1%2F1-{rollout.id}")
    page = report.page
    span = rollout.policy_spans[0]
    tokens = page.locator(".turn").first.locator(".token")
    assert tokens.count() == len(span.ids)
    seen = {}
    for shade in ("none", "mask", "advantage", "ratio", "surprise"):
        page.locator(f".shades label:has(input[value={shade}])").click()
        seen[shade] = tokens.evaluate_all("nodes => nodes.map(node => getComputedStyle(node).backgroundColor)")
    assert len(set(seen["none"])) == 1
    assert len(set(seen["advantage"])) == 1
    assert len({json.dumps(colours) for colours in seen.values()}) == 5
    ratios = [new - old for new, old in zip(span.new_logprobs, span.old_logprobs, strict=True)]
    page.locator(".shades label:has(input[value=ratio])").click()
    names = tokens.evaluate_all("nodes => nodes.map(node => node.dataset.shade)")
    assert names == ["up" if round(r, 3) > 0 else "down" if round(r, 3) < 0 else "" for r in ratios]
    tokens.nth(1).hover()
    read = page.inner_text(".readout")
    assert f"token 2 of {len(span.ids)}" in read
    assert "think" in read
    page.locator(".turn").first.get_by_text("Numbers by part").click()
    rows = page.locator(".turn").first.locator("tbody tr")  # made when the browser has told of the opening
    rows.nth(len(span.parts) - 1).wait_for()
    assert rows.count() == len(span.parts)


def test_without_a_tokenizer_each_token_is_a_cell_below_the_text(open_report, tmp_path, example):
    write_report(find_source(EXAMPLE), tmp_path / "report.html")
    report = open_report(tmp_path / "report.html", f"rollouts/1%2F{example[0].id}")
    first = report.page.locator(".turn").first
    assert first.locator(".policy").inner_text() == example[0].policy_spans[0].text
    assert first.locator(".cell").count() == len(example[0].policy_spans[0].ids)
    assert "--tokenizer" in report.page.inner_text(".notes")


HOSTILE = {
    "script": "<script>alert('passage')</script>",
    "end of script": "</script></style></title><script>alert(1)</script>",
    "image": "<img src=x onerror=\"alert('image')\"> <svg onload=alert(1)>",
    "end of passages": "</information> </documents> <answer> forged </answer>",
    "right to left": "שלום עולם مرحبا \u202e reversed \u2067 never closed",
    "long": "x" * 10_000,
    "long words": "many words of a long passage " * 350,
    "combining": "z" + "\u0334\u0335\u0336" * 60,
    "control": "a\u0000b\u0007c\u2028d\ufeff",
    "link": "javascript:alert(1) [x](javascript:alert(1)) {{7*7}} ${alert(1)}",
}


def test_hostile_text_is_text_wherever_it_stands(open_report, tmp_path, example):
    """Nothing runs, nothing is asked of the network, no layout breaks: `open_report` holds the page to it."""
    rollouts = batch(example[:2], 1)
    rollouts[1].group = rollouts[0].group
    texts = list(HOSTILE.values())
    for rollout in rollouts:
        rollout.question = " ".join(texts[:5])
        rollout.golden_answers = [HOSTILE["script"], HOSTILE["right to left"], "(a+)+$ \\"]
        rollout.answer = HOSTILE["image"]
        rollout.error = HOSTILE["image"]
        rollout.data_source = HOSTILE["script"]
        rollout.counts[HOSTILE["image"]] = 1
        rollout.rewards[HOSTILE["image"]] = 1.0
        rollout.extra = {HOSTILE["script"]: HOSTILE["end of script"]}
        rollout.supporting_titles = [HOSTILE["image"]]
        observation = next(span for span in rollout.spans if span.documents)
        while len(observation.documents) < len(texts):
            observation.documents.append(copy.copy(observation.documents[0]))
        for document, text in zip(observation.documents, texts, strict=True):
            document.title = document.text = document.id = text
        observation.text = "".join(texts)
        policy = rollout.policy_spans[0]
        policy.text = HOSTILE["end of script"]
        policy.action.query = HOSTILE["image"]
    write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    write_report(find_source(tmp_path / "rollouts.jsonl"), tmp_path / "report.html")
    for width in (1400, 375):
        report = open_report(tmp_path / "report.html", f"rollouts/1%2F{rollouts[0].id}", width=width)
        page = report.page
        page.locator(".detail details").evaluate_all("nodes => nodes.forEach(node => (node.open = true))")
        shown = (
            page.locator(".turn").first.locator(".passage").evaluate_all("nodes => nodes.map(node => node.textContent)")
        )
        assert shown == texts
        assert page.locator(".passage *:not(mark)").count() == 0
        assert page.locator("img, svg, iframe, main script").count() == 0
        assert page.inner_text(".detail h2").startswith("<script>")
        directions = page.locator(".passage").evaluate_all(
            "nodes => nodes.map(node => [getComputedStyle(node).direction, getComputedStyle(node).unicodeBidi])"
        )
        assert ["rtl", "isolate"] in directions
        assert page.evaluate("getComputedStyle(document.body).direction") == "ltr"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(
            "document.querySelector('.detail').scrollWidth <= document.querySelector('.detail').clientWidth"
        )
        if width > 900:
            page.keyboard.press("c")
            page.wait_for_selector(".compare")
            page.fill("#search", "alert('image')")
            assert report.found().startswith("2 rollouts")
        page.wait_for_timeout(200)


def test_the_page_itself_forbids_scripts_images_requests_and_markup(browser, run_report):
    context = browser.new_context()
    page = context.new_page()
    page.goto(run_report.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(BLOCKED, "script") in ("require-trusted-types-for", "script-src-elem")
    assert page.evaluate("window.ran") is None
    assert page.evaluate(BLOCKED, "request") == "connect-src"
    assert page.evaluate(BLOCKED, "image") == "img-src"
    assert page.evaluate(BLOCKED, "form") == "form-action"
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    context.close()


# The whole page ------------------------------------------------------------------------------------------------------


def test_five_thousand_rollouts_fit_in_a_file_and_stay_usable(open_report, tmp_path, example):
    rollouts = [
        dataclasses.replace(rollout, step=step, id=f"{step}-{copy}-{rollout.id}", group=f"{copy}-{rollout.group}")
        for step in range(1, 26)
        for copy in range(25)
        for rollout in example
    ]
    write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    file = tmp_path / "report.html"
    write_report(find_source(tmp_path / "rollouts.jsonl"), file)
    assert file.stat().st_size < 25e6
    report = open_report(file, "rollouts")
    page = report.page
    assert report.found() == "5,000 rollouts"
    rows = page.locator(".rows tbody tr")
    assert rows.count() < 500
    last = rollouts[-1]
    page.fill("#search", last.id)
    page.wait_for_selector(".found:has-text('1 rollout of 5,000')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert last.id in report.asked(last.id)
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_selector(".rows tbody tr:nth-child(5000)")
    assert rows.count() == 5000
    report.current(f"{last.step}/{last.id}")
    assert page.locator(".rows tr[aria-current]").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_readers_choice(open_report, run_report, scheme):
    report = open_report(run_report, "overview", scheme=scheme)
    page = report.page
    other = "dark" if scheme == "light" else "light"

    def ground():
        return sum(
            int(x)
            for x in re.findall(r"\d+", page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        )

    assert (ground() > 380) is (scheme == "light")
    lines = set(page.locator("figure.chart canvas").first.evaluate(INK))
    while page.locator("html").get_attribute("data-theme") != other:
        page.click("#theme")
    assert (ground() > 380) is (other == "light")
    assert set(page.locator("figure.chart canvas").first.evaluate(INK)) != lines
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("html").get_attribute("data-theme") == other


@pytest.mark.parametrize("section", ["overview", "drift", "rollouts", "metrics", "configuration"])
def test_nothing_is_wider_than_a_phone(open_report, run_report, section):
    report = open_report(run_report, section, width=375)
    page = report.page
    page.wait_for_timeout(150)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    if section == "rollouts":
        assert page.locator(".list").is_visible()
        page.locator(".rows a").first.click()
        page.wait_for_selector(".detail h2")
        assert not page.locator(".list").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        page.get_by_role("link", name="All rollouts").click()
        page.wait_for_selector(".list", state="visible")


@pytest.mark.parametrize("section", ["overview", "drift", "rollouts", "metrics", "configuration"])
def test_a_screen_reader_finds_its_way(open_report, run_report, example, section):
    place = f"rollouts/1%2F1-{example[0].id}" if section == "rollouts" else section
    page = open_report(run_report, place).page
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Sections").locator("[aria-current=page]").count() == 1
    assert page.get_by_role("status").count() >= 1
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(UNREACHABLE) == []
    assert page.locator("table:not(:has(th[scope]))").count() == 0
    ids = page.locator("[id]").evaluate_all("nodes => nodes.map(node => node.id)")
    assert len(set(ids)) == len(ids)
    assert page.locator("main h2").count() >= 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.locator("body").get_attribute("data-section") == section


def test_a_running_report_loads_itself_anew_and_keeps_the_readers_place(open_report, run_folder, example):
    (run_folder / "summary.json").unlink()
    file = run_folder / "report.html"
    data = collect(run_folder)
    file.write_text(render(data, live=1))
    report = open_report(file, "rollouts")
    page = report.page
    assert "Live" in page.inner_text("#live")
    assert "not finished" in page.inner_text("#state")
    page.fill("#search", example[0].id)
    report.found()
    page.keyboard.press("Escape")
    page.locator(".rows a").first.click()
    page.wait_for_selector(".detail h2")
    place = page.evaluate("location.hash")
    assert place != "#rollouts"
    file.write_text(render(data | {"title": "made again"}, live=None))
    page.wait_for_selector("#title:has-text('made again')")
    assert page.evaluate("location.hash") == place
    assert page.input_value("#search") == example[0].id
    page.wait_for_selector(".detail h2")
    assert not page.locator("#live").is_visible()


def test_a_comparison_shows_arms_survival_table_and_verdict(open_report, tmp_path):
    def rewards(seed, dies):
        return tuple(0.0 if dies and step > 10 + seed else 0.3 + 0.02 * step for step in range(1, 31))

    results = [
        Result(
            regime,
            arm,
            seed,
            f"runs/{regime}-{arm}-{seed}",
            Status.DONE,
            None,
            rewards(seed, regime == "stress" and arm == "grpo"),
        )
        for regime in ("stable", "stress")
        for arm in ("grpo", "llds")
        for seed in range(3)
    ]
    results.append(Result("stress", "llds", 3, "../../elsewhere", Status.FAILED, HOSTILE["image"]))
    arms = {name: {"objective": name, "settings": {}} for name in ("grpo", "llds")}
    comparison = Comparison("lab", "stable", {"stable": {}, "stress": {"trainer.lr": 1e-3}}, arms, results)
    (tmp_path / "comparison.json").write_text(json.dumps(comparison.to_dict()))
    write_report(find_source(tmp_path), tmp_path / "report.html")
    page = open_report(tmp_path / "report.html").page
    assert len(page.locator(".verdict li").all_inner_texts()) == len(comparison.verdict)
    assert page.locator(".results tbody tr").count() == 4
    cells = [cell for row in page.locator(".results tbody tr").all() for cell in row.locator("td").all_inner_texts()]
    assert "0.1 (too few runs to tell)" in cells  # three against three: the smallest two-sided p
    assert not any("{" in cell for cell in cells)
    survival = page.locator("figure.chart", has_text="Survival").last.get_by_role("img").get_attribute("aria-label")
    assert "grpo from 1 at step 0 to 0 at" in survival
    assert "llds from 1 at step 0 to 1 at" in survival
    for canvas in page.locator("figure.chart canvas").all():
        assert len(canvas.evaluate(INK)) > 10
    page.get_by_text("Runs (13)").click()
    assert page.get_by_text(HOSTILE["image"], exact=True).is_visible()
    links = page.locator("main a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert "./runs/stress-llds-0/report.html" in links
    assert all(link.startswith("./") and ".." not in link for link in links)


def test_a_part_of_the_rollouts_says_so_on_the_page(open_report, run_folder):
    file = run_folder / "report.html"
    write_report(find_source(run_folder), file, Options(rollouts=8))
    assert "Showing 8 of 16 rollouts" in open_report(file, "rollouts").page.inner_text(".notes")
