"""One step over two processes, which talk to each other as ranks do."""

import pytest
import torch
import two_ranks

from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of the two found."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(two_ranks.run, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_every_rank_counts_the_whole_step(ranks):
    whole = two_ranks.totals_of(range(7))
    assert [totals for totals, *_ in ranks] == [whole, whole]
    assert whole != two_ranks.totals_of(two_ranks.ROWS[0])


@pytest.mark.parametrize("name", two_ranks.OBJECTIVES)
def test_two_ranks_make_the_gradient_of_one(ranks, name):
    parts, parameters, aggregation = two_ranks.OBJECTIVES[name]
    policy = two_ranks.Shift(9)
    loss = two_ranks.step_loss(policy, resolve(parts, parameters, aggregation), range(7), two_ranks.totals_of(range(7)))
    loss.backward()
    assert policy.weight.grad.abs().max() > 1e-3
    for _, found, *_ in ranks:
        grad, value = found[name]
        torch.testing.assert_close(grad, policy.weight.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(value, loss.detach(), rtol=1e-9, atol=1e-12)


def test_what_no_rank_has_counted_stays_uncounted(ranks):
    assert [uncounted for _, _, uncounted, _ in ranks] == [StepTotals(4, 2, None, None)] * 2


def test_totals_that_do_not_fit_together_are_refused_on_every_rank(ranks):
    assert all("everywhere" in refused for *_, refused in ranks)
