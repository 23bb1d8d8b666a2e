import random
from dataclasses import replace

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from sleuth.errors import UserError
from sleuth.samplers.transformers import TransformersSampler
from sleuth.types import Sampler, SampleRequest, SamplingParams, StopReason

from .conftest import VOCABULARY

SAMPLED = SamplingParams()
GREEDY = SamplingParams(temperature=0.0)


def some_ids(seed, shortest=3, longest=40):
    rng = random.Random(seed)
    return [rng.randrange(VOCABULARY) for _ in range(rng.randrange(shortest, longest))]


def requests_for(contexts, rule, *, turn=0, limit=12):
    return [SampleRequest(key, list(ids), limit, rule, seed=1000 * turn + key) for key, ids in contexts.items()]


def full_forward_logprobs(model, context, ids, temperature=1.0):
    with torch.no_grad():
        logits = model(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)


def play(sampler, contexts, rule, params, turns, *, limit=12):
    """Several turns with observations in between; completions by key and turn."""
    contexts = {key: list(ids) for key, ids in contexts.items()}
    played = {key: [] for key in contexts}
    for turn in range(turns):
        requests = requests_for(contexts, rule, turn=turn, limit=limit)
        for request, completion in zip(requests, sampler.sample(requests, params), strict=True):
            played[request.key].append(completion)
            contexts[request.key] += completion.ids + some_ids(1000 * turn + request.key, 1, 30)
    return played


class Fed:
    """Counts the tokens that a model's forwards get."""

    def __init__(self, model):
        self.shapes = []
        model.register_forward_pre_hook(self._see, with_kwargs=True)

    def _see(self, module, args, kwargs):
        self.shapes.append(tuple((args[0] if args else kwargs["input_ids"]).shape))

    def take(self):
        total = sum(rows * tokens for rows, tokens in self.shapes)
        self.shapes.clear()
        return total


def test_is_a_sampler(qwen2):
    assert isinstance(TransformersSampler(qwen2), Sampler)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.7])
def test_logprobs_over_four_turns_are_those_of_one_full_forward(model, rule, temperature):
    sampler = TransformersSampler(model, prefill_tokens=50)
    contexts = {key: some_ids(key) for key in range(7)}
    stop = rule(triggers=[5, 6, 7], ends=[0])
    lengths = set()
    for turn in range(4):
        requests = requests_for(contexts, stop, turn=turn)
        for request, completion in zip(
            requests, sampler.sample(requests, SamplingParams(temperature=temperature)), strict=True
        ):
            expected = full_forward_logprobs(model, request.ids, completion.ids, temperature or 1.0)
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
            if temperature == 0:
                with torch.no_grad():
                    own = model(torch.tensor([request.ids + completion.ids])).logits[0, len(request.ids) - 1 : -1]
                assert completion.ids == own.argmax(-1).tolist()
            lengths.add(len(completion.ids))
            contexts[request.key] += completion.ids + some_ids(100 * turn + request.key, 1, 60)
    assert len(lengths) > 1, "rows should stop at different steps for this to say anything"


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_batch_size_and_order_change_nothing(model, rule, params):
    contexts = {key: some_ids(key) for key in range(16)}
    stop = rule(triggers=[5, 6], ends=[0])
    together = play(TransformersSampler(model), contexts, stop, params, turns=3)
    for size in (1, 3):
        keys = list(contexts)
        random.Random(size).shuffle(keys)
        apart = {}
        for first in range(0, len(keys), size):
            part = {key: contexts[key] for key in keys[first : first + size]}
            apart |= play(TransformersSampler(model), part, stop, params, turns=3)
        for key in contexts:
            assert [(c.ids, c.stop) for c in apart[key]] == [(c.ids, c.stop) for c in together[key]]
            for a, b in zip(apart[key], together[key], strict=True):
                assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_a_row_that_stopped_is_frozen(qwen2, rule):
    """Its neighbours go on for long, compact the batch and overwrite what they may; its next turn notices nothing."""
    contexts = {key: some_ids(key) for key in range(8)}
    short = {key: 1 if key < 5 else 40 for key in contexts}
    sampler = TransformersSampler(qwen2)
    requests = [replace(r, max_new_tokens=short[r.key]) for r in requests_for(contexts, rule())]
    first = sampler.sample(requests, SAMPLED)
    assert [len(c.ids) for c in first] == [short[key] for key in contexts]
    assert [c.stop for c in first] == [StopReason.LENGTH] * 8
    grown = {r.key: r.ids + c.ids + some_ids(r.key + 50) for r, c in zip(requests, first, strict=True)}
    second = requests_for(grown, rule(), turn=1)
    for request, completion in zip(second, sampler.sample(second, SAMPLED), strict=True):
        alone = TransformersSampler(qwen2).sample([request], SAMPLED)[0]
        assert completion.ids == alone.ids
        assert completion.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_a_turn_costs_its_new_tokens_only(model, rule):
    sampler = TransformersSampler(model)
    fed = Fed(model)
    contexts = {key: some_ids(key) for key in range(6)}
    new = sum(len(ids) for ids in contexts.values())
    for turn in range(4):
        requests = requests_for(contexts, rule(triggers=[5, 6], ends=[0]), turn=turn)
        completions = sampler.sample(requests, SAMPLED)
        # The last token of a turn is fed with the observation that follows it.
        assert fed.take() == new + sum(len(c.ids) - 1 for c in completions)
        new = 0
        for request, completion in zip(requests, completions, strict=True):
            observation = some_ids(100 * turn + request.key)
            contexts[request.key] += completion.ids + observation
            new += len(observation) + 1


def test_the_rollouts_of_one_question_share_its_computation(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    fed = Fed(qwen2)
    question = some_ids(1)
    requests = requests_for(dict.fromkeys(range(5), question), rule(), limit=6)
    completions = sampler.sample(requests, SAMPLED)
    assert fed.take() == len(question) + 5 * 5
    assert len({tuple(c.ids) for c in completions}) > 1
    for request, completion in zip(requests, completions, strict=True):
        alone = TransformersSampler(qwen2).sample([request], SAMPLED)[0]
        assert completion.ids == alone.ids


def test_the_instructions_before_different_questions_are_computed_once(qwen2, rule):
    instructions = some_ids(1, 40, 41)
    contexts = {key: [*instructions, key, *some_ids(key)] for key in range(5)}
    contexts[5] = contexts[4]
    contexts[6] = [*instructions[:35]]
    for limit in (4096, 16):
        sampler = TransformersSampler(qwen2, prefill_tokens=limit)
        fed = Fed(qwen2)
        requests = requests_for(contexts, rule(), limit=1)
        completions = sampler.sample(requests, SAMPLED)
        assert fed.take() == 34 + sum(len(contexts[key]) - 34 for key in (0, 1, 2, 3, 4, 6))
        for request, completion in zip(requests, completions, strict=True):
            torch.testing.assert_close(
                torch.tensor(completion.logprobs),
                full_forward_logprobs(qwen2, request.ids, completion.ids),
                atol=1e-4,
                rtol=0,
            )


def test_memory_is_given_back_with_the_last_conversation(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    sampler.sample(requests_for({0: some_ids(0), 1: some_ids(1)}, rule(), limit=2), SAMPLED)
    sampler.release([0])
    assert sampler._store.columns > 0
    sampler.release([1])
    assert sampler._store.columns == 0


def test_prefill_is_bounded(qwen2, rule):
    sampler = TransformersSampler(qwen2, prefill_tokens=16)
    fed = Fed(qwen2)
    contexts = {0: some_ids(0, 50, 51), 1: some_ids(1, 5, 6), 2: some_ids(2, 30, 31)}
    requests = requests_for(contexts, rule(), limit=1)
    completions = sampler.sample(requests, SAMPLED)
    assert fed.shapes == [(1, 16)] * 5 + [(1, 5)]
    whole = TransformersSampler(qwen2).sample(requests, SAMPLED)
    assert [c.ids for c in completions] == [c.ids for c in whole]


def test_logits_are_computed_for_last_tokens_only(qwen2, rule):
    rows = []
    qwen2.lm_head.register_forward_pre_hook(lambda module, args: rows.append(args[0].shape[:-1].numel()))
    sampler = TransformersSampler(qwen2)
    rows.clear()
    sampler.sample(requests_for({key: some_ids(key) for key in range(4)}, rule(), limit=3), SAMPLED)
    assert rows == [4, 4, 4]


def test_another_context_for_a_known_key_is_computed_again(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    (first,) = sampler.sample(requests_for({0: some_ids(0, 20, 21)}, rule()), SAMPLED)
    fed = Fed(qwen2)
    for changed, new in (
        (some_ids(99, 20, 21), 20),  # nothing in common
        (some_ids(99, 20, 21)[:10] + some_ids(98, 20, 21), 20),  # after 10 tokens another way
        (some_ids(99, 20, 21)[:5], 1),  # shorter than before
    ):
        request = requests_for({0: changed}, rule(), limit=1)[0]
        fed.take()
        (again,) = sampler.sample([request], SAMPLED)
        assert fed.take() == new
        torch.testing.assert_close(
            torch.tensor(again.logprobs), full_forward_logprobs(qwen2, changed, again.ids), atol=1e-4, rtol=0
        )
    assert first.ids


def test_a_cut_completion_is_no_harm(qwen2, rule):
    """A driver may keep less than was sampled: what it cut is not in the next context."""
    sampler = TransformersSampler(qwen2)
    (first,) = sampler.sample(requests_for({0: some_ids(0)}, rule()), SAMPLED)
    context = some_ids(0) + first.ids[:4] + some_ids(1)
    (second,) = sampler.sample(requests_for({0: context}, rule(), turn=1), SAMPLED)
    torch.testing.assert_close(
        torch.tensor(second.logprobs), full_forward_logprobs(qwen2, context, second.ids), atol=1e-4, rtol=0
    )


def test_release_forgets(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    requests = requests_for({key: some_ids(key, 10, 11) for key in range(3)}, rule(), limit=1)
    sampler.sample(requests, SAMPLED)
    fed = Fed(qwen2)
    sampler.sample(requests, SAMPLED)
    assert fed.take() == 3
    sampler.release([0, 2, "unknown"])
    sampler.sample(requests, SAMPLED)
    assert fed.take() == 10 + 1 + 10
    sampler.clear()
    sampler.sample(requests, SAMPLED)
    assert fed.take() == 30


def test_released_rows_leave_room_for_others(qwen2, rule):
    """Conversations come and go at different times; each gets what it would get alone."""
    sampler = TransformersSampler(qwen2)
    stop = rule(triggers=[5, 6], ends=[0])
    contexts = {key: some_ids(key) for key in range(9)}
    going = {}
    for turn in range(6):
        for key in list(contexts)[:3]:
            going[key] = contexts.pop(key)
        requests = requests_for(going, stop, turn=turn)
        for request, completion in zip(requests, sampler.sample(requests, SAMPLED), strict=True):
            expected = full_forward_logprobs(qwen2, request.ids, completion.ids)
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
            going[request.key] = request.ids + completion.ids + some_ids(turn)
        over = list(going)[::2][: 1 + turn % 3]
        sampler.release(over)
        for key in over:
            del going[key]
        if not going:
            break
    assert turn > 2


def test_new_weights_void_what_was_computed(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    contexts = {0: some_ids(0, 20, 21)}
    (first,) = sampler.sample(requests_for(contexts, rule()), SAMPLED)
    contexts[0] += first.ids
    optimizer = torch.optim.AdamW(qwen2.parameters(), lr=0.05)
    qwen2(torch.tensor([contexts[0]]), labels=torch.tensor([contexts[0]])).loss.backward()
    optimizer.step()
    (second,) = sampler.sample(requests_for(contexts, rule(), turn=1), SAMPLED)
    torch.testing.assert_close(
        torch.tensor(second.logprobs), full_forward_logprobs(qwen2, contexts[0], second.ids), atol=1e-4, rtol=0
    )


def test_fewer_slots_than_conversations_change_no_result(qwen2, rule):
    contexts = {key: some_ids(key) for key in range(7)}
    stop = rule(triggers=[5, 6], ends=[0])
    free = play(TransformersSampler(qwen2), contexts, stop, SAMPLED, turns=3)
    sampler = TransformersSampler(qwen2, max_rows=3)
    fed = Fed(qwen2)
    tight = play(sampler, contexts, stop, SAMPLED, turns=3)
    assert {key: [c.ids for c in turns] for key, turns in tight.items()} == {
        key: [c.ids for c in turns] for key, turns in free.items()
    }
    assert len(sampler._conversations) == 3
    assert fed.shapes


def test_an_end_token_in_mid_turn_ends_it_and_belongs_to_it(qwen2, rule):
    """M1: the padding id is the end-of-sequence id (0 here), and the policy samples it."""
    qwen2.lm_head = torch.nn.Linear(32, VOCABULARY, bias=True)
    qwen2.config.tie_word_embeddings = False
    with torch.no_grad():
        qwen2.lm_head.weight.mul_(0.1)
        qwen2.lm_head.bias.zero_()[0] = 3.0
    contexts = {key: [0, 0, *some_ids(key)] for key in range(12)}
    requests = requests_for(contexts, rule(ends=[0]), limit=30)
    completions = TransformersSampler(qwen2).sample(requests, SAMPLED)
    assert any(c.stop is StopReason.END_OF_TURN and len(c.ids) > 1 for c in completions)
    for request, completion in zip(requests, completions, strict=True):
        assert (completion.ids[-1] == 0) == (completion.stop is StopReason.END_OF_TURN)
        assert 0 not in completion.ids[:-1]
        expected = full_forward_logprobs(qwen2, request.ids, completion.ids)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
    # Without the rule the same id is a token like any other.
    (plain,) = TransformersSampler(qwen2).sample([replace(requests[0], stop=rule())], SAMPLED)
    assert len(plain.ids) == 30
    assert 0 in plain.ids[:-1]


def test_the_model_gets_the_ids_that_were_sampled(qwen2, rule):
    """M3: the engine sees every id as it was given or drawn, each once and in order."""
    seen = []
    sampler = TransformersSampler(qwen2)
    qwen2.model.embed_tokens.register_forward_pre_hook(lambda module, args: seen.extend(args[0].flatten().tolist()))
    context = some_ids(3)
    for turn in range(3):
        (completion,) = sampler.sample(requests_for({0: context}, rule(), turn=turn), SAMPLED)
        context = context + completion.ids
        assert seen == context[:-1]
        context = context + some_ids(turn)


def test_a_tag_of_several_tokens_stops_where_it_is_complete(qwen2, rule):
    """Only the last token of the tag is a trigger, and the rule looks at what came before it."""
    (free,) = TransformersSampler(qwen2).sample(requests_for({0: some_ids(0)}, rule(), limit=40), SAMPLED)
    tag = free.ids[20:23]
    asked = []

    def complete(ids):
        asked.append(list(ids))
        return list(ids[-3:]) == tag

    stop = rule(triggers=[tag[-1]], complete=complete)
    (stopped,) = TransformersSampler(qwen2).sample(requests_for({0: some_ids(0)}, stop, limit=40), SAMPLED)
    assert stopped.stop is StopReason.ACTION
    assert stopped.ids == free.ids[: len(stopped.ids)]
    assert stopped.ids[-3:] == tag
    assert asked == [free.ids[: n + 1] for n in range(len(stopped.ids)) if free.ids[n] == tag[-1]]


def test_long_turns_make_room_as_they_go(qwen2, rule):
    requests = requests_for({0: some_ids(0), 1: some_ids(1)}, rule(), limit=300)
    for request, completion in zip(requests, TransformersSampler(qwen2).sample(requests, SAMPLED), strict=True):
        assert len(completion.ids) == 300
        expected = full_forward_logprobs(qwen2, request.ids, completion.ids)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=2e-4, rtol=0)


def test_a_turn_that_broke_off_leaves_a_usable_sampler(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    contexts = {key: some_ids(key) for key in range(4)}
    calls = []

    def broken(ids):
        calls.append(ids)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        sampler.sample(requests_for(contexts, rule(triggers=range(VOCABULARY), complete=broken)), SAMPLED)
    assert qwen2.config._attn_implementation != "sleuth_packed"
    again = sampler.sample(requests_for(contexts, rule()), SAMPLED)
    fresh = TransformersSampler(qwen2).sample(requests_for(contexts, rule()), SAMPLED)
    assert [c.ids for c in again] == [c.ids for c in fresh]


def test_seeds_decide(qwen2, rule):
    sampler = TransformersSampler(qwen2)
    request = requests_for({0: some_ids(0)}, rule())[0]
    ids = {tuple(sampler.sample([replace(request, seed=seed)], SAMPLED)[0].ids) for seed in (1, 2, 3, 1, 2, 3)}
    assert len(ids) == 3


def test_no_requests_no_completions(qwen2):
    assert TransformersSampler(qwen2).sample([], SAMPLED) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"key": 1}, "same key"), ({"ids": []}, "empty context"), ({"max_new_tokens": 0}, "single token")],
)
def test_impossible_requests_are_refused(qwen2, rule, change, problem):
    requests = requests_for({0: [1], 1: [2]}, rule())
    with pytest.raises(ValueError, match=problem):
        TransformersSampler(qwen2).sample([replace(requests[0], **change), requests[1]], SAMPLED)


def test_half_precision_agrees_with_its_own_forward(rule):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    request = requests_for({0: some_ids(0)}, rule())[0]
    (completion,) = TransformersSampler(model).sample([request], SAMPLED)
    expected = full_forward_logprobs(model.float(), request.ids, completion.ids)
    torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=0.05, rtol=0)


def test_settings_below_one_are_refused(qwen2):
    with pytest.raises(ValueError, match="at least 1"):
        TransformersSampler(qwen2, max_rows=0)
    with pytest.raises(ValueError, match="at least 1"):
        TransformersSampler(qwen2, prefill_tokens=0)


def test_a_model_that_it_cannot_run_is_refused_at_once():
    config = Gemma2Config(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, head_dim=8,
        num_key_value_heads=2, attn_logit_softcapping=50.0,
    )  # fmt: skip
    with pytest.raises(UserError, match="capped scores"):
        TransformersSampler(Gemma2ForCausalLM(config))


def test_a_lora_model_in_training_samples_with_its_adapter(qwen2, rule):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(qwen2, peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    model.train()
    request = requests_for({0: some_ids(0)}, rule())[0]
    (completion,) = TransformersSampler(model).sample([request], SAMPLED)
    assert model.training
    model.eval()
    with_adapter = full_forward_logprobs(model, request.ids, completion.ids)
    torch.testing.assert_close(torch.tensor(completion.logprobs), with_adapter, atol=1e-4, rtol=0)
    with model.disable_adapter():
        without = full_forward_logprobs(model, request.ids, completion.ids)
    assert (with_adapter - without).abs().max() > 0.01


def test_gradient_checkpointing_and_dropout_are_off_while_sampling(qwen2, rule):
    qwen2.config.attention_dropout = 0.5
    qwen2.gradient_checkpointing_enable()
    qwen2.train()
    request = requests_for({0: some_ids(0)}, rule())[0]
    (completion,) = TransformersSampler(qwen2).sample([request], SAMPLED)
    assert qwen2.training
    qwen2.eval()
    torch.testing.assert_close(
        torch.tensor(completion.logprobs), full_forward_logprobs(qwen2, request.ids, completion.ids), atol=1e-4, rtol=0
    )
