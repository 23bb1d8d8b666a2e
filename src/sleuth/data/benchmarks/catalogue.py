"""What is known of each benchmark: split, count, licence, where it is published, how its columns are called."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sleuth.errors import UserError

FLASHRAG = "RUC-NLPIR/FlashRAG_datasets"
"""Its configurations are the benchmarks that Search-R1 and its descendants report: 51,713 questions in all seven."""


@dataclass(frozen=True, slots=True)
class HubPlace:
    """A data set of the `datasets` hub. ``revision`` is a commit, where one is known to hold what is meant."""

    name: str
    config: str | None
    split: str
    revision: str | None = None

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        revision = f", revision {self.revision[:12]}" if self.revision else ""
        return f"{self.name}{config}@{self.split}{revision}"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of the benchmark's own distribution.

    Attributes:
        sha256: of its bytes, as several independent projects state it; None where no such statement is known.
        url: where it can be downloaded without an account; None where the hub is the way.
    """

    name: str
    sha256: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark.

    Attributes:
        split: the one that tables report; ``count`` is its number of questions.
        licence: of the data, by its authors' statement.
        folders: names of its folder in the layouts of others (FlashRAG's, the authors').
        files: of the authors' own distribution.
        columns: their name of a column → ours, where :func:`sleuth.data.forms.question_of` doesn't know it.
        keeps: which rows belong to the benchmark; None: all.
        hops: of every question; None where rows differ or no one says.
        gated: what one has to do before the hub gives it; None where it is open.
        sealed: published encrypted; the plain text is kept in memory only (:mod:`sleuth.data.benchmarks.sealed`).
        note: what a reader of its figures has to know.
    """

    name: str
    title: str
    split: str
    count: int
    licence: str
    paper: str
    hub: HubPlace | None
    folders: tuple[str, ...] = ()
    files: tuple[PublishedFile, ...] = ()
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    keeps: Callable[[Mapping[str, Any]], bool] | None = None
    hops: int | None = None
    gated: str | None = None
    sealed: bool = False
    note: str = ""


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of that name; capitals, ``-``, ``_`` and the field's other spellings don't matter.

    Raises:
        UserError: no such benchmark; names the nearest one.
    """
    key = _key(name)
    if key in _BY_KEY:
        return _BY_KEY[key]
    near = difflib.get_close_matches(key, _BY_KEY, 1)
    hint = f"did you mean {_BY_KEY[near[0]].name}?" if near else f"there are {', '.join(BENCHMARKS)}"
    raise UserError(f'"{name}" is no benchmark; {hint}')


def is_benchmark(name: str) -> bool:
    """Whether :func:`find_benchmark` knows it."""
    return _key(name) in _BY_KEY


def _key(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _without_attachment(fields: Mapping[str, Any]) -> bool:
    return not str(fields.get("file_name") or "").strip()


_FRAMES_COLUMNS = {"Prompt": "question", "Answer": "golden_answers"}
_GAIA_COLUMNS = {"task_id": "id", "Question": "question", "Final answer": "golden_answers", "Level": "level"}
_SIMPLE_EVALS = "https://openaipublic.blob.core.windows.net/simple-evals"

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="nq",
            title="Natural Questions (open)",
            split="test",
            count=3610,
            licence="CC BY-SA 3.0",
            paper="Kwiatkowski et al. 2019; open version: Lee et al. 2019 (arXiv 1906.00300)",
            hub=HubPlace(FLASHRAG, "nq", "test"),
            folders=("nq", "nq_open", "natural_questions"),
            files=(PublishedFile("NQ-open.dev.jsonl"),),
            hops=1,
            note="The test set of the open version is the development set of Natural Questions.",
        ),
        Benchmark(
            name="triviaqa",
            title="TriviaQA (unfiltered, no context)",
            split="test",
            count=11313,
            licence="Apache-2.0",
            paper="Joshi et al. 2017 (arXiv 1705.03551)",
            hub=HubPlace(FLASHRAG, "triviaqa", "test"),
            folders=("triviaqa", "trivia_qa", "tqa"),
            hops=1,
            note="Each question has many aliases; they are all golden answers.",
        ),
        Benchmark(
            name="popqa",
            title="PopQA",
            split="test",
            count=14267,
            licence="MIT",
            paper="Mallen et al. 2023 (arXiv 2212.10511)",
            hub=HubPlace(FLASHRAG, "popqa", "test"),
            folders=("popqa",),
            files=(PublishedFile("popQA.tsv"),),
            columns={"prop": "qtype"},
            hops=1,
        ),
        Benchmark(
            name="hotpotqa",
            title="HotpotQA",
            split="dev",
            count=7405,
            licence="CC BY-SA 4.0",
            paper="Yang et al. 2018 (arXiv 1809.09600)",
            hub=HubPlace(FLASHRAG, "hotpotqa", "dev"),
            folders=("hotpotqa", "hotpot_qa"),
            files=(PublishedFile("hotpot_dev_distractor_v1.json"), PublishedFile("hotpot_dev_fullwiki_v1.json")),
            columns={"type": "qtype"},
            hops=2,
            note="The answers of its test set are not public: tables report the development set.",
        ),
        Benchmark(
            name="2wiki",
            title="2WikiMultihopQA",
            split="dev",
            count=12576,
            licence="Apache-2.0",
            paper="Ho et al. 2020 (arXiv 2011.01060)",
            hub=HubPlace(FLASHRAG, "2wikimultihopqa", "dev"),
            folders=("2wikimultihopqa", "2wiki"),
            files=(PublishedFile("dev.json"),),
            columns={"type": "qtype"},
            note="The answers of its test set are not public: tables report the development set.",
        ),
        Benchmark(
            name="musique",
            title="MuSiQue (answerable)",
            split="dev",
            count=2417,
            licence="CC BY 4.0",
            paper="Trivedi et al. 2022 (arXiv 2108.00573)",
            hub=HubPlace(FLASHRAG, "musique", "dev"),
            folders=("musique",),
            files=(PublishedFile("musique_ans_v1.0_dev.jsonl"),),
            note="Its single-hop steps come from SQuAD, NQ, T-REx, MLQA and zsRE: training on those can leak into it.",
        ),
        Benchmark(
            name="bamboogle",
            title="Bamboogle",
            split="test",
            count=125,
            licence="MIT",
            paper="Press et al. 2023 (arXiv 2210.03350)",
            hub=HubPlace(FLASHRAG, "bamboogle", "test"),
            folders=("bamboogle",),
            columns={"Question": "question", "Answer": "golden_answers"},
            hops=2,
            note="125 questions: an EM of .4 has a 95 % interval of about ±.086.",
        ),
        Benchmark(
            name="frames",
            title="FRAMES",
            split="test",
            count=824,
            licence="Apache-2.0",
            paper="Krishna et al. 2024 (arXiv 2409.12941)",
            hub=HubPlace("google/frames-benchmark", None, "test"),
            folders=("frames", "frames-benchmark"),
            files=(PublishedFile("test.tsv"),),
            columns=_FRAMES_COLUMNS,
            note="Its authors score with an LLM judge; exact match is too strict for its longer answers.",
        ),
        Benchmark(
            name="browsecomp",
            title="BrowseComp",
            split="test",
            count=1266,
            licence="MIT",
            paper="Wei et al. 2025 (arXiv 2504.12516)",
            hub=None,
            folders=("browsecomp", "BrowseComp"),
            files=(
                PublishedFile(
                    "browse_comp_test_set.csv",
                    sha256="7b24471cd5b3eb2a46830a14802b5c029ea62f488ff75a0f88af7923d1454abf",
                    url=f"{_SIMPLE_EVALS}/browse_comp_test_set.csv",
                ),
            ),
            columns={"problem": "question", "answer": "golden_answers", "problem_topic": "qtype"},
            sealed=True,
            note="Published encrypted, to stay out of training sets; its authors score with an LLM judge.",
        ),
        Benchmark(
            name="gaia",
            title="GAIA, questions without an attached file",
            split="validation",
            count=127,
            licence="none stated; its terms forbid sharing it outside of gated or private places",
            paper="Mialon et al. 2023 (arXiv 2311.12983)",
            hub=HubPlace("gaia-benchmark/GAIA", "2023_all", "validation"),
            folders=("gaia", "GAIA", "2023/validation"),
            files=(PublishedFile("metadata.parquet"), PublishedFile("metadata.jsonl")),
            columns=_GAIA_COLUMNS,
            keeps=_without_attachment,
            gated="log in at huggingface.co, accept the terms on the page of gaia-benchmark/GAIA, then `hf auth login`",
            note="127 of the 165 validation questions have no attached file. Papers that speak of GAIA-text-103 use a "
            "smaller list, without questions on pictures and videos of the web.",
        ),
    )
}

_SPELLINGS = {
    "naturalquestions": "nq",
    "nqopen": "nq",
    "tqa": "triviaqa",
    "2wikimultihopqa": "2wiki",
    "2wikimqa": "2wiki",
    "hotpot": "hotpotqa",
    "framesbenchmark": "frames",
    "gaiatext": "gaia",
}
_BY_KEY = {_key(name): benchmark for name, benchmark in BENCHMARKS.items()} | {
    spelling: BENCHMARKS[name] for spelling, name in _SPELLINGS.items()
}
