"""Other tools' functions in the form that `sleuth conformance` asks.

They are called as they are installed. Search-R1 alone, which is in no package, is stated anew, by its rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sleuth.rewards.search_r1_compat import SEARCH_R1_COMPAT, search_r1_answer


def search_r1_em(solution_str: str, ground_truth: Mapping[str, Any]) -> float:
    """Search-R1's rule as :mod:`sleuth.rewards.search_r1_compat` states it: prompt and rollout in one text."""
    if not len(ground_truth["target"]):  # its loop over no answers finds none
        return 0.0
    return SEARCH_R1_COMPAT.exact_match(search_r1_answer(solution_str), ground_truth["target"])


def search_r1_cover(solution_str: str, ground_truth: Mapping[str, Any]) -> float:
    """Its substring match."""
    return SEARCH_R1_COMPAT.cover_em(search_r1_answer(solution_str), ground_truth["target"])


def flashrag_em(prediction: str, golden_answers: Any) -> float:
    """FlashRAG's metric ``em``."""
    return _flashrag("ExactMatch").calculate_em(prediction, golden_answers)


def flashrag_cover(prediction: str, golden_answers: Any) -> float:
    """FlashRAG's metric ``acc``."""
    return _flashrag("Sub_ExactMatch").calculate_sub_em(prediction, golden_answers)


def skyrl_turn(text: str) -> tuple[str | None, str | None]:
    """What SkyRL's search environment does with a turn: end on an answer, or call the tool with a query."""
    from skyrl_gym.envs.search.utils import extract_solution

    environment = _skyrl_environment()
    environment.turns = 0
    if environment._is_done(text):
        return "answer", extract_solution(text)
    (query,) = environment._parse_action(text)
    return (None, None) if query is None else ("search", query)


@cache
def _flashrag(metric: str) -> Any:
    from flashrag.evaluator import metrics

    return getattr(metrics, metric)({"dataset_name": "nq"})


@cache
def _skyrl_environment() -> Any:
    from skyrl_gym.envs.search.env import SearchEnv, SearchEnvConfig

    return SearchEnv(SearchEnvConfig(), {"reward_spec": {"ground_truth": {"target": []}}, "max_turns": 5})
