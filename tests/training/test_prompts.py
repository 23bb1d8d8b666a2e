from collections import Counter

from sleuth.training.prompts import PromptSampler


def _batches(sampler):
    order = list(sampler)
    size = sampler.prompts * sampler.group
    return [order[i : i + size] for i in range(0, len(order), size)]


def test_each_batch_is_repeated_for_every_part_that_is_trained():
    batches = _batches(PromptSampler(rows=10, prompts=3, group=2, repeats=4, steps=5, seed=0))
    assert len(batches) == 20
    for step in range(5):
        assert all(b == batches[4 * step] for b in batches[4 * step : 4 * step + 4])


def test_the_rollouts_of_a_prompt_stand_together():
    for batch in _batches(PromptSampler(rows=10, prompts=3, group=4, repeats=1, steps=3, seed=1)):
        assert all(len(set(batch[i : i + 4])) == 1 for i in range(0, 12, 4))


def test_a_pass_uses_every_row_once_even_across_batches():
    batches = _batches(PromptSampler(rows=10, prompts=4, group=1, repeats=1, steps=5, seed=0))
    seen = Counter(row for batch in batches for row in batch)
    assert set(seen.values()) == {2}  # 20 draws over 10 rows


def test_order_is_a_function_of_the_seed():
    draw = lambda seed: list(PromptSampler(20, 4, 2, 1, 10, seed))  # noqa: E731
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_length_is_the_number_of_draws():
    sampler = PromptSampler(rows=7, prompts=3, group=2, repeats=2, steps=4, seed=0)
    assert len(list(sampler)) == len(sampler) == 48
