"""Reading on: the page that a passage was cut from, part by part, as a tool of the policy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from sleuth.errors import UserError
from sleuth.types import Document

_PART = re.compile(r"\s*(?:#|,?\s*part\s+)(\d+)\s*$", re.IGNORECASE)


@runtime_checkable
class Pages(Protocol):
    """What knows pages: an index, a server, a reader of the web."""

    def page(self, name: str) -> list[Document]:
        """The passages of a page, in reading order; none if there is no such page."""
        ...


def visit_tool(pages: Pages, words: int) -> Callable[..., str]:
    """The tool ``visit``.

    A page comes in parts of at most ``words`` words, cut between words, so that a part fits an observation. What is not
    there is said to the policy; a reader that fails raises, which takes the rollout out of loss and score.
    """

    def visit(page: str, part: int = 1) -> str:
        """Read a page that a search has shown.

        Args:
            page: Title or id of a passage.
            part: Which part of a long page, counted from 1.
        """
        return show_page(pages, page, part, words)

    return visit


def show_page(pages: Pages, name: str, part: int, words: int) -> str:
    """Part ``part`` of a page with its title and, where there are more, how to read on.

    Tags have one argument only: ``Title #2`` asks for part 2, unless a page is really called so.
    """
    name = name.strip()
    found = pages.page(name)
    if not found and (match := _PART.search(name)):
        name, part = name[: match.start()], int(match[1])
        found = pages.page(name)
    if not found:
        return f'There is no page "{name}".'
    title = found[0].title or found[0].id
    parts = cut_page("\n\n".join(d.text for d in found), words)
    if not 1 <= part <= len(parts):
        return f'The page "{title}" has {len(parts)} part{"s" if len(parts) > 1 else ""}; there is no part {part}.'
    more = f"\n(part {part} of {len(parts)}; the next one is {title} #{part + 1})" if part < len(parts) else ""
    return f"{title}\n{parts[part - 1]}{more}"


def cut_page(text: str, words: int) -> list[str]:
    """Stretches of at most ``words`` words; white space inside them stays as it is."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    if not ends:
        return [""]
    cuts = [0, *(ends[n - 1] for n in range(words, len(ends), words)), ends[-1]]
    return [text[a:b].strip() for a, b in itertools.pairwise(cuts)]


def require_pages(retriever: Any) -> Pages:
    """The retriever as something that knows pages.

    Raises:
        UserError: it doesn't.
    """
    if not isinstance(retriever, Pages):
        raise UserError(
            f"retriever.visit: a {type(retriever).__name__} has no pages; use retriever.kind=index or http, "
            f"or give your own retriever a method page(name)"
        )
    return retriever
