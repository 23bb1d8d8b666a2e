"""The closed vocabulary of HopWorld: every text in it is white-space separated words from :data:`VOCABULARY`.

The order is the tiny tokenizer's id order: a changed list needs newly trained tiny weights.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
SPECIAL_TOKENS: tuple[str, ...] = (PAD, BOS, EOS, UNK)

TAGS: tuple[str, ...] = tuple(
    tag for name in ("think", "search", "information", "answer") for tag in (f"<{name}>", f"</{name}>")
)
"""The tags of the Search-R1 protocol, one token each."""

RELATIONS: tuple[str, ...] = ("rival", "teacher", "spouse", "parent", "boss", "friend", "doctor", "guard")
"""Relations from one entity to exactly one other."""

AGE = "age"
"""The one attribute: its values are :data:`AGES`."""

AGES: tuple[str, ...] = ("10", "20", "30", "40", "50", "60", "70", "80", "90")

NAMES: tuple[str, ...] = _words(
    """
    adele agnes albert alice amber andre angus anna anton arthur astrid basil beata bella boris bruno carla cedric
    chloe clara colin daisy daniel david diana doris edgar edith elena emil erica ernst esther fabio felix fiona
    frank frida georg gerda gilda greta gustav hanna hector helen henry hilda hugo ingrid irene isaac ivan jacob
    janet jasper joan judith julia karen karl katja klara kurt laura leon linda louis lucia magda marco maria martin
    monica nadia nelly nina nora oscar otto pablo paula pedro petra rita robert rosa rufus sandra simon sofia stella
    tanja thomas ursula victor
    """
)
"""Names, reused and reassigned in every world."""

WORDS: tuple[str, ...] = _words(
    """
    who is was name the of and or has older younger today ? . need find first look up now so then it answer must be
    got next again not here maybe both
    """
)
"""Everything else that passages, questions and thoughts are made of."""

VOCABULARY: tuple[str, ...] = (*SPECIAL_TOKENS, *TAGS, *RELATIONS, AGE, *AGES, *WORDS, *NAMES)
