"""Registered losses and the trainer's own, called as verl's workers call them, against our objective: 1e-6."""

from dataclasses import replace

import pytest
import torch
from batches import batch, step

pytest.importorskip("verl", reason="verl is not in this environment")

from tensordict import TensorDict
from verl.utils import tensordict_utils
from verl.workers.config import FSDPActorConfig
from verl_actor import actor_loss

from sleuth.errors import UserError
from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.training.verl.losses import ANSWER, ROLLOUT_ADVANTAGES, SEARCHES, TOTALS, SearchLoss
from sleuth.training.verl.settings import ObjectiveSettings, SearchPolicyLossConfig

EXACT = {"rtol": 1e-6, "atol": 1e-9}


def actor(loss_mode="search_objective", objective=None, parameters=None, **settings):
    loss = SearchPolicyLossConfig(loss_mode=loss_mode, objective=objective, parameters=parameters or {})
    return FSDPActorConfig(rollout_n=4, ppo_micro_batch_size_per_gpu=1, policy_loss=loss, **settings)


RELEASED_LLDS = {"llds": {"preset": "released"}}
CASES = {
    "search_ppo_clip": ("ppo_clip", {}),
    "search_dual_clip": ("dual_clip", {}),
    "search_gspo": ("gspo", {}),
    "search_cispo": ("cispo", {}),
    "search_soft_sapo": ("soft_sapo", {}),
    "search_sapo": ("search_sapo", {"search_sapo": {"gamma": 0.3}}),
    "search_llds": ("llds", RELEASED_LLDS),
    "search_dapo": ("dapo", {"dapo": {"zero_variance": "keep"}}),
}


@pytest.mark.parametrize("mode", CASES)
@pytest.mark.parametrize("per_token", [False, True], ids=["a rollout", "a token"])
def test_a_registered_loss_is_our_objective(mode, per_token):
    logp, old, advantages, mask = batch(rows=8, length=16, spread=1.2)
    if per_token:
        advantages = advantages[:, None] * torch.rand(mask.shape, dtype=advantages.dtype)
    name, parameters = CASES[mode]
    loss, grad, metrics = actor_loss(actor(mode, parameters=parameters), logp, old, advantages, mask)
    wanted, wanted_grad = step(resolve(name, parameters), logp, old, advantages, mask)
    torch.testing.assert_close(loss, wanted, **EXACT)
    torch.testing.assert_close(grad, wanted_grad, **EXACT)
    assert grad.abs().max() > 1e-3
    assert 0 <= metrics["actor/pg_clipfrac"].aggregate() <= 1


def test_names_combine():
    values = batch(rows=8, length=16, spread=1.2)
    config = actor(objective="gspo+search_sapo", parameters={"search_sapo": {"gamma": 0.3}})
    objective = resolve("gspo+search_sapo", {"search_sapo": {"gamma": 0.3}})
    torch.testing.assert_close(actor_loss(config, *values)[1], step(objective, *values)[1], **EXACT)


@pytest.mark.parametrize(
    ("verls", "ours"),
    [
        ({"loss_agg_mode": "seq-mean-token-mean"}, {"aggregation": "seq_mean_token_mean"}),
        (
            {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 20},
            {"aggregation": "sum_over_max_length", "length": 20},
        ),
        ({"loss_agg_mode": "seq-mean-token-sum"}, {"aggregation": "sum_over_max_length", "length": 1}),
    ],
)
def test_verls_aggregations_are_ours(verls, ours):
    values = batch(rows=8, length=16)
    length = {"aggregation": {"max_length": ours["length"]}} if "length" in ours else {}
    loss, grad, _ = actor_loss(actor("search_sapo", **verls), *values)
    wanted, wanted_grad = step(resolve("search_sapo", length, aggregation=ours["aggregation"]), *values)
    torch.testing.assert_close(loss, wanted, **EXACT)
    torch.testing.assert_close(grad, wanted_grad, **EXACT)


def test_micro_batches_on_two_ranks_add_up_to_the_whole_update():
    values = batch(rows=8, length=16, spread=1.2)
    config, mask = actor("search_sapo"), values[-1]
    whole = actor_loss(config, *values)[1]
    parts = [
        actor_loss(config, *(x[rows] for x in values), step_mask=mask, ranks=2)[1]
        for rows in (slice(0, 1), slice(1, 6), slice(6, 8))
    ]
    torch.testing.assert_close(torch.cat(parts) / 2, whole, **EXACT)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (actor(), "needs policy_loss.objective"),
        (actor("search_sapo", objective="gspo"), "needs policy_loss.loss_mode=search_objective"),
        (actor(objective="calibadv"), "calibadv works on whole groups"),
        (actor(objective="signbalance+search_sapo"), "signbalance works on whole groups"),
        (actor("search_llds"), "nonnegative tokens"),
        (actor("search_sapo", parameters={"search_sapo": {"preset": "released"}}), "nonnegative tokens"),
        (actor("search_llds", parameters={"llds": {"preset": "released", "ma": True}}), "llds.ma"),
        (actor("search_dapo"), "filter_groups"),
        (actor(objective="reference_kl"), "actor.use_kl_loss"),
        (actor("search_sapo", loss_agg_mode="token-sum"), "has no counterpart"),
        (actor("search_dapo", loss_agg_mode="seq-mean-token-mean"), "set it to token-mean"),
        (actor("search_sapo", loss_agg_mode="seq-mean-token-sum-norm"), "actor.loss_scale_factor"),
        (actor("search_sapo", parameters={"search_sapo": {"gama": 1}}), "search_sapo has: preset, gamma"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(config, said):
    with pytest.raises(UserError, match=said):
        actor_loss(config, *batch(rows=8, length=16))


# The trainer's own loss


def trainer_loss(settings, logp, old, advantages, mask, rollouts, totals, ranks=1, **fields):
    """(loss, gradient, metrics) as the engine calls a loss; ``fields`` are (B, T) or (B, 1)."""
    leaf = logp.detach().clone().requires_grad_()
    rows, length = mask.shape
    lengths = [int(row.nonzero()[-1]) + 1 for row in mask]  # nested, so of different lengths
    nested = {
        "prompts": torch.zeros(rows, 1, dtype=torch.long),
        "responses": torch.zeros(rows, length, dtype=torch.long),
        "response_mask": mask.long(),
        "old_log_probs": old,
        "advantages": advantages,
        **{name: values for name, values in fields.items() if values.shape[1] == length},
    }
    data = {
        name: _nested([row[: 1 if name == "prompts" else n] for row, n in zip(values, lengths, strict=True)])
        for name, values in nested.items()
    }
    data |= {name: values for name, values in fields.items() if values.shape[1] == 1}
    data[ROLLOUT_ADVANTAGES] = rollouts[:, None]
    entropy = data.pop("entropy", None)
    data = TensorDict(data, batch_size=rows)
    counts = (totals.tokens, totals.rollouts, totals.positive_tokens, totals.nonnegative_tokens)
    tensordict_utils.assign_non_tensor(data, dp_size=ranks, **dict(zip(TOTALS, counts, strict=True)))
    output = {"log_probs": _shifted(leaf, lengths)}
    if entropy is not None:
        output["entropy"] = _shifted(fields["entropy"], lengths)
    loss, metrics = SearchLoss(settings)(output, data)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), grad, metrics


def _shifted(values, lengths):
    """As a model gives it behind a prompt of one token: each position holds what belongs to the next token."""
    return _nested([torch.cat([row[:n], row.new_zeros(1)]) for row, n in zip(values, lengths, strict=True)])


def _nested(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


TRAINER_CASES = {
    "paper llds, which counts protected tokens": ("llds+gspo", {}),
    "released search_sapo": ("search_sapo", {"search_sapo": {"preset": "released"}}),
    "llds that looks at answers": ("llds", {"llds": {"ma": True}}),
}


@pytest.mark.parametrize("case", TRAINER_CASES)
def test_the_trainers_loss_is_our_objective_whatever_the_micro_batches(case):
    name, parameters = TRAINER_CASES[case]
    logp, old, rollouts, mask = batch(rows=8, length=16, spread=1.2)
    mask = mask.bool()
    advantages = rollouts[:, None] * torch.rand(mask.shape, dtype=rollouts.dtype)
    answer = torch.rand(mask.shape) < 0.3
    searches = torch.tensor([[0], [1], [2], [3], [1], [0], [1], [2]])
    settings = ObjectiveSettings.of(actor(objective=name, parameters=parameters), whole=True)
    totals = StepTotals.of(mask, rollouts)
    extra = {ANSWER: answer, SEARCHES: searches}
    wanted, wanted_grad = step(
        resolve(name, parameters),
        logp,
        old,
        advantages,
        mask,
        rollout_advantages=rollouts,
        answer=answer,
        searches=searches[:, 0],
    )
    losses, grads = [], []
    for rows in (slice(0, 3), slice(3, 8)):
        fields = {key: values[rows] for key, values in extra.items()}
        parts = (logp[rows], old[rows], advantages[rows], mask[rows], rollouts[rows])
        loss, grad, metrics = trainer_loss(settings, *parts, totals, ranks=2, **fields)
        losses.append(loss / 2)
        grads.append(grad / 2)
        assert metrics["actor/pg_loss"].aggregate() == pytest.approx(loss.item())
    torch.testing.assert_close(sum(losses), wanted, **EXACT)
    torch.testing.assert_close(torch.cat(grads), wanted_grad, **EXACT)
    assert wanted_grad.abs().max() > 1e-3


def test_verls_kl_and_entropy_are_in_the_trainers_loss():
    logp, old, rollouts, mask = batch(rows=8, length=16)
    mask = mask.bool()
    ref, entropy = old - 0.3, old.abs()
    config = actor("search_sapo", use_kl_loss=True, kl_loss_coef=0.2, kl_loss_type="low_var_kl", entropy_coeff=0.1)
    settings = ObjectiveSettings.of(config, whole=True)
    parts = {"reference_kl": {"coefficient": 0.2}, "entropy": {"coefficient": 0.1}}
    wanted, wanted_grad = step(
        resolve("search_sapo+reference_kl+entropy", parts), logp, old, rollouts, mask, ref, entropy=entropy
    )
    spread = rollouts[:, None].expand(mask.shape)
    loss, grad, metrics = trainer_loss(
        settings, logp, old, spread, mask, rollouts, StepTotals.of(mask, rollouts), ref_log_prob=ref, entropy=entropy
    )
    torch.testing.assert_close(loss, wanted, **EXACT)
    torch.testing.assert_close(grad, wanted_grad, **EXACT)
    assert metrics["actor/term/reference_kl"].aggregate() > 0


def test_importance_weights_of_verl_weigh_the_surrogate_and_not_the_terms():
    logp, old, rollouts, mask = batch(rows=8, length=16, spread=1.2)
    mask = mask.bool()
    spread, totals = rollouts[:, None].expand(mask.shape), StepTotals.of(mask, rollouts)
    both, alone = (
        ObjectiveSettings.of(actor(objective=name), whole=True) for name in ("ppo_clip+search_sapo", "ppo_clip")
    )
    weights = torch.full(mask.shape, 0.5, dtype=old.dtype)
    weighed = trainer_loss(both, logp, old, spread, mask, rollouts, totals, rollout_is_weights=weights)[0]
    plain = trainer_loss(both, logp, old, spread, mask, rollouts, totals)[0]
    surrogate = trainer_loss(alone, logp, old, spread, mask, rollouts, totals)[0]
    torch.testing.assert_close(weighed, plain - surrogate / 2)


def test_one_term_twice_is_refused():
    with pytest.raises(UserError, match="keep one"):
        ObjectiveSettings.of(actor(objective="entropy", entropy_coeff=0.1), whole=True)


def test_settings_survive_the_way_to_a_worker():
    import cloudpickle

    settings = ObjectiveSettings.of(actor("search_sapo", parameters={"search_sapo": {"gamma": 0.3}}), whole=True)
    loss = cloudpickle.loads(cloudpickle.dumps(SearchLoss(settings)))
    assert loss == SearchLoss(settings)
    assert replace(loss, settings=settings).settings.resolve().terms[0].weight == 0.3
