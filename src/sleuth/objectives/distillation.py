"""Distillation: how far a student's next-token distributions are from a teacher's, over the whole vocabulary.

Used by Search-E1-style self-distillation (arXiv 2605.22511), whose loss is the forward KL with an optional bound on
each vocabulary term, as in OPSD (arXiv 2601.18734). Pure functions of tensors; they belong to no trainer.

The bound is to be used with care. Where a term ``p log(p / q)`` exceeds it, that term has no gradient, and the gradient
in the student's logits becomes ``q · P - p`` with P the teacher's probability of all *unclipped* tokens (and without
``- p`` at the clipped ones). For ``p = (.7, .2, .05, .05)`` and ``q = (.4, .4, .1, .1)`` every sign is the reverse of
the exact gradient's, and the student moves away from the teacher. The clipped sum may also be negative: it is no
divergence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Divergence = Literal["forward_kl", "reverse_kl", "jsd"]
Rest = Literal["tail", "truncate", "renormalise"]

ELEMENTS = 9 << 20
"""Logits that a chunk holds at once, for each of student and teacher: 36 MiB in fp32.

More than 32 MiB: glibc gives such blocks back as soon as they are free. Smaller ones stay in its heap, in pieces that
nothing else fits into: with chunks of 16 MiB a stage took 3.9 GiB for 1.1 GiB of tensors.
"""


def divergence_terms(student_logp: Tensor, teacher_logp: Tensor, kind: Divergence = "forward_kl") -> Tensor:
    """The terms whose sum over the vocabulary is the divergence, in nats; a token of probability 0 adds nothing.

    Args:
        student_logp, teacher_logp: (..., V), log of distributions over the same tokens.
        kind: ``forward_kl``: p log(p / q) with p the teacher's, q the student's; ``reverse_kl``: q log(q / p); ``jsd``:
            the mean of both towards the mixture (p + q) / 2.

    Returns:
        (..., V). The gradient goes into ``student_logp`` alone.
    """
    teacher_logp = teacher_logp.detach()
    if kind == "forward_kl":
        return _relative(teacher_logp, student_logp)
    if kind == "reverse_kl":
        return _relative(student_logp, teacher_logp)
    mixture = torch.logaddexp(teacher_logp, student_logp) - torch.log(torch.tensor(2.0))
    return (_relative(teacher_logp, mixture) + _relative(student_logp, mixture)) / 2


def divergence(
    student_logp: Tensor, teacher_logp: Tensor, kind: Divergence = "forward_kl", clip: float | None = None
) -> Tensor:
    """The divergence at every position, (...), in nats: the sum of :func:`divergence_terms`.

    Args:
        clip: upper bound on each term, see the module.
    """
    terms = divergence_terms(student_logp, teacher_logp, kind)
    return (terms if clip is None else terms.clamp(max=clip)).sum(-1)


def keep_top(student_logp: Tensor, teacher_logp: Tensor, k: int, rest: Rest = "tail") -> tuple[Tensor, Tensor]:
    """Both distributions on the teacher's ``k`` likeliest tokens.

    Args:
        student_logp, teacher_logp: (..., V).
        rest: ``tail``: one more column with the logarithm of all other tokens' probability, so that both still sum to
            1; ``truncate``: nothing, both sum to less than 1; ``renormalise``: both are scaled to sum to 1.

    Returns:
        (..., k), or (..., k + 1) with ``tail``. With k of at least V they come back as they are.
    """
    if k >= teacher_logp.size(-1):
        return student_logp, teacher_logp
    index = teacher_logp.topk(k, dim=-1).indices
    kept = [logp.gather(-1, index) for logp in (student_logp, teacher_logp)]
    if rest == "renormalise":
        kept = [logp.log_softmax(-1) for logp in kept]
    elif rest == "tail":
        # Summed over the tail itself: 1 minus the head's sum has no digits left where the head is nearly all.
        top = torch.zeros_like(teacher_logp, dtype=torch.bool).scatter_(-1, index, True)
        tails = [logp.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True) for logp in (student_logp, teacher_logp)]
        kept = [torch.cat(pieces, dim=-1) for pieces in zip(kept, tails, strict=True)]
    return kept[0], kept[1]


@dataclass(frozen=True, slots=True)
class Distilled:
    """What :func:`distil` gives for N positions, (N,) each; only ``loss`` carries a gradient.

    Attributes:
        loss: the divergence, clipped and cut to the top k as asked for.
        kl: exact KL(teacher ‖ student) over the whole vocabulary, whatever the loss is.
        clipped: the teacher's probability on terms that the bound cut.
        gain: the teacher's log-prob of the token that stands there, minus the student's.
    """

    loss: Tensor
    kl: Tensor
    clipped: Tensor
    gain: Tensor


def distil(
    student: Tensor,
    teacher: Tensor,
    student_head: Callable[[Tensor], Tensor],
    teacher_head: Callable[[Tensor], Tensor],
    tokens: Tensor,
    *,
    kind: Divergence = "forward_kl",
    clip: float | None = None,
    top_k: int | None = None,
    rest: Rest = "tail",
    temperature: float = 1.0,
    elements: int = ELEMENTS,
) -> Distilled:
    """Divergence from hidden states, a chunk of positions at a time: no (N, V) tensor ever exists.

    Each chunk's logits are made in the forward pass, thrown away, and made again in the backward pass, so that memory
    grows with the chunk and not with N. Log-probs are those of fp32 logits whatever the heads compute in.

    Args:
        student, teacher: (N, H) and (N, H'), the hidden states that predict the N kept tokens; the teacher's get no
            gradient.
        student_head, teacher_head: hidden states (n, H) → logits (n, V).
        tokens: (N,), the ids that stand at these positions.
        top_k, rest: see :func:`keep_top`; None: the whole vocabulary.
        elements: logits in a chunk.

    Raises:
        ValueError: not as many positions of both, or vocabularies of different size.
    """
    if not len(student) == len(teacher) == len(tokens):
        raise ValueError(f"{len(student)} student, {len(teacher)} teacher positions and {len(tokens)} tokens")
    teacher = teacher.detach()

    def chunk(h: Tensor, g: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        with torch.no_grad():
            p = (teacher_head(g).float() / temperature).log_softmax(-1)
        q = (student_head(h).float() / temperature).log_softmax(-1)
        if p.shape != q.shape:
            raise ValueError(f"the teacher has {p.size(-1)} tokens, the student {q.size(-1)}")
        few_q, few_p = (q, p) if top_k is None else keep_top(q, p, top_k, rest)
        terms = divergence_terms(few_q, few_p, kind)
        with torch.no_grad():
            kl = divergence(q, p)
            cut = few_p.exp().masked_fill(terms <= (torch.inf if clip is None else clip), 0.0).sum(-1)
            gain = (p - q).gather(-1, ids[:, None])[:, 0]
        return (terms if clip is None else terms.clamp(max=clip)).sum(-1), kl, cut, gain

    rows = _rows(student, student_head, elements)
    pieces = []
    for start in range(0, len(student), rows):
        part = slice(start, start + rows)
        arguments = (student[part], teacher[part], tokens[part])
        pieces.append(
            checkpoint(chunk, *arguments, use_reentrant=False) if torch.is_grad_enabled() else chunk(*arguments)
        )
    if not pieces:
        empty = student.sum() * torch.zeros(0, device=student.device)
        return Distilled(empty, empty.detach(), empty.detach(), empty.detach())
    loss, kl, clipped, gain = (torch.cat(column) for column in zip(*pieces, strict=True))
    return Distilled(loss, kl.detach(), clipped.detach(), gain.detach())


def _relative(p_log: Tensor, q_log: Tensor) -> Tensor:
    """p log(p / q), and 0 where p is 0 whatever q is."""
    none = p_log == -torch.inf
    return (p_log.exp() * (p_log.masked_fill(none, 0.0) - q_log.masked_fill(none, 0.0))).masked_fill(none, 0.0)


@torch.no_grad()
def _rows(student: Tensor, head: Callable[[Tensor], Tensor], elements: int) -> int:
    """Positions in a chunk."""
    return max(elements // head(student[:1]).size(-1), 1) if len(student) else 1
