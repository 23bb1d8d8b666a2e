"""Where each token's text stands in a span, for shading; and the tokenizer that knows."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path

from sleuth.agent.codec import TokenCodec
from sleuth.errors import UserError


def token_lengths(codec: TokenCodec, ids: Sequence[int], text: str) -> list[int] | None:
    """The length of each token's text, in UTF-16 units as JavaScript counts; they sum up to ``text``'s.

    A character of several tokens belongs to the one that completes it, and the others have length 0.

    Returns:
        None where this tokenizer doesn't spell ``ids`` as ``text``: another one made them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = codec.pieces(ids)
    texts = [decoder.decode(piece, final=i == len(pieces) - 1) for i, piece in enumerate(pieces)]
    if "".join(texts) != text:
        return None
    return [utf16_length(piece) for piece in texts]


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else sum(1 + (ord(character) > 0xFFFF) for character in text)


def find_codec(run: Path | None, tokenizer: str | None = None) -> tuple[TokenCodec | None, str | None]:
    """The tokenizer of a run, from the disk alone.

    Args:
        tokenizer: a folder (or hub name) that the user named, instead.

    Returns:
        The codec, or None and why there is none.

    Raises:
        UserError: the named one can't be loaded.
    """
    from sleuth.models import load_tokenizer

    if tokenizer is not None:
        return TokenCodec(load_tokenizer(tokenizer)), None
    if run is None:
        return None, "a rollouts file names no tokenizer; give it with --tokenizer to see single tokens"
    for folder in _candidates(run):
        try:
            return TokenCodec(load_tokenizer(str(folder))), None
        except UserError:
            continue
    return None, "the run has no checkpoint with a tokenizer on this disk; name one with --tokenizer"


def _candidates(run: Path) -> list[Path]:
    """Folders that may hold the run's tokenizer: its checkpoints, latest first, then the model that it started from."""
    steps = (path for path in (run / "checkpoints").glob("step-*") if path.name[5:].isdigit())
    folders = sorted(steps, key=lambda path: int(path.name[5:]), reverse=True)
    try:
        from sleuth.assembly import model_source
        from sleuth.recipes.loader import load_recipe

        folders.append(Path(model_source(load_recipe(run / "recipe.yaml", check_required=False))))
    except (UserError, OSError, json.JSONDecodeError):
        pass
    return [folder for folder in folders if (folder / "tokenizer.json").is_file()]
