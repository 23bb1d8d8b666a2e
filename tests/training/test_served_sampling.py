"""Training with the rollouts of a vLLM server: adapters are sent, the gap is measured and corrected."""

import sys
from types import SimpleNamespace

import pytest
import torch

from sleuth.assembly import build_model, build_tokenizer
from sleuth.errors import RunFailed, UserError
from sleuth.objectives import resolve
from sleuth.objectives.aggregation import StepTotals
from sleuth.objectives.tokens import Tokens
from sleuth.samplers.transformers import TransformersSampler
from sleuth.training.importance import SamplerGap, importance_weights
from sleuth.training.run import train
from sleuth.training.run_folder import RunFolder
from sleuth.types import SampleRequest, SamplingParams, StopRule

from .served import TRANSFER, ServedModel

LORA = ["model_settings.lora=4", "trainer.lr=0.02", "trainer.steps=3", "trainer.eval_every=0"]
SERVER = ["evaluation.enabled=false", "sampling.server.model=base"]


def trained(small, path, **server):
    """Metrics of a short run whose rollouts a server samples, and the server."""
    recipe = small()
    with ServedModel(build_model(recipe).eval(), build_tokenizer(recipe), **server) as served:
        train(small(*LORA, *SERVER, f"sampling.server.url={served.url}"), path, quiet=True)
    return RunFolder(path).read_metrics(), served


def test_the_server_samples_from_the_weights_of_the_moment(small, tmp_path):
    records, served = trained(small, tmp_path / "run")
    for record in records:
        assert 0 < record["sampler/gap/mean"] < 1e-4
        assert record["sampler/weight"] == pytest.approx(1, abs=1e-4)
        assert record["sampler/unknown"] == 0
        assert record["searches"] > 0
    assert len(served.loaded) == 3  # one version a step
    assert [*served.models] == ["base", served.loaded[-1]]
    assert [folder.name for folder in (tmp_path / "run" / "adapters").iterdir()] == served.loaded[-1:]


@pytest.fixture
def transfer(monkeypatch):
    """TRL's client as it is with vLLM installed; NCCL's two ends are a queue. Call it with the server."""
    from trl.generation import vllm_client, vllm_generation

    def between(served):
        def send(iterator, trainer_args):
            for name, tensor in iterator:
                served.wire.put((name, tensor.detach().clone()))

        engine = SimpleNamespace(trainer_send_weights=send)
        for module in (vllm_client, vllm_generation):
            monkeypatch.setattr(module, "is_vllm_available", lambda **_: True)
        monkeypatch.setattr(vllm_client, "NCCLWeightTransferEngine", engine, raising=False)
        monkeypatch.setattr(vllm_client, "NCCLTrainerSendWeightsArgs", lambda **given: given, raising=False)
        monkeypatch.setattr(vllm_client.VLLMClient, "init_communicator", lambda client, device: None)

    return between


def trained_whole(small, path, transfer, **server):
    recipe = small()
    with ServedModel(build_model(recipe).eval(), build_tokenizer(recipe), **server) as served:
        transfer(served)
        settings = ["trainer.lr=0.002", "trainer.steps=3", "trainer.eval_every=0", f"sampling.server.url={served.url}"]
        train(small(*settings, *SERVER), path, quiet=True)
    return RunFolder(path).read_metrics(), served


def test_whole_weights_are_sent_by_trls_client_whenever_they_have_changed(small, tmp_path, transfer):
    records, served = trained_whole(small, tmp_path / "run", transfer)
    for record in records:
        assert 0 < record["sampler/gap/mean"] < 1e-4
        assert record["sampler/unknown"] == 0
        assert record["searches"] > 0
    assert served.calls == [*TRANSFER] * 3  # one version a step
    assert served.loaded == []
    assert served.wire.empty()


def test_whole_weights_that_never_arrive_are_seen(small, tmp_path, transfer):
    records, _ = trained_whole(small, tmp_path / "run", transfer, stale=True)
    assert records[0]["sampler/gap/mean"] < 1e-4
    assert records[-1]["sampler/gap/mean"] > 1e-3


def test_a_transfer_that_breaks_ends_the_run_with_the_way_on(small, tmp_path, transfer, monkeypatch):
    from trl.generation import vllm_client

    def broken(client, metadata, named):
        raise RuntimeError("NCCL error: unhandled system error")

    monkeypatch.setattr(vllm_client.VLLMClient, "update_named_params", broken)
    with pytest.raises(RunFailed, match=r"NCCL error.*--resume"):
        trained_whole(small, tmp_path / "run", transfer)


def test_without_vllm_here_whole_weights_are_refused(small, tmp_path):
    recipe = small()
    with ServedModel(build_model(recipe), build_tokenizer(recipe)) as served:
        settings = [*SERVER, f"sampling.server.url={served.url}"]
        with pytest.raises(UserError, match=r"trl\[vllm\].*model_settings.lora"):
            train(small(*settings), tmp_path / "run", quiet=True)


def test_a_server_that_takes_no_weights_is_refused_with_its_flags(small, tmp_path, transfer, monkeypatch):
    from trl.generation import vllm_client

    def refused(client, device):
        raise RuntimeError("The vLLM server has no weight-transfer engine.")

    with ServedModel(build_model(small()), build_tokenizer(small())) as served:
        transfer(served)
        monkeypatch.setattr(vllm_client.VLLMClient, "init_communicator", refused)
        with pytest.raises(UserError, match=r"VLLM_SERVER_DEV_MODE=1 .*--weight-transfer-config"):
            train(small(*SERVER, f"sampling.server.url={served.url}"), tmp_path / "run", quiet=True)


class Engine:
    """``vllm.LLM`` as far as TRL and Sleuth use it: really samples, from weights that are loaded into it."""

    def __init__(self, model, tokenizer):
        self._tokenizer = tokenizer
        self.parameters = dict(model.named_parameters())
        self.sampler = TransformersSampler(model)
        self.loads, self.resets = 0, 0
        # Where TRL finds the model to load weights into.
        runner = SimpleNamespace(model=self)
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))

    def load_weights(self, weights):
        for name, tensor in weights:
            with torch.no_grad():
                self.parameters[name].copy_(tensor)
            self.loads += 1

    def reset_prefix_cache(self):
        self.resets += 1

    def generate(self, prompts, settings, use_tqdm):
        assert not use_tqdm
        requests = []
        for n, (prompt, s) in enumerate(zip(prompts, settings, strict=True)):
            rule = StopRule(
                lambda ids, s=s: any(stop in self._tokenizer.decode(ids) for stop in s.stop),
                frozenset(range(len(self._tokenizer))),
                frozenset(s.stop_token_ids),
            )
            requests.append(SampleRequest(n, prompt["prompt_token_ids"], s.max_tokens, rule, s.seed))
        done = self.sampler.sample(requests, SamplingParams(settings[0].temperature))
        self.sampler.clear()
        answers = []
        for turn in done:
            stated = [{i: SimpleNamespace(logprob=x)} for i, x in zip(turn.ids, turn.logprobs, strict=True)]
            answers.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=turn.ids, logprobs=stated)]))
        return answers


@pytest.fixture
def engine(small, transfer, monkeypatch):
    """The engine that TRL starts in its colocated mode."""
    recipe = small()
    made = Engine(build_model(recipe).eval(), build_tokenizer(recipe))
    transfer(SimpleNamespace())
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        # TRL sets them for vLLM; left behind, they would make a launched process of whatever comes next.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    monkeypatch.setattr("trl.generation.vllm_generation.LLM", lambda **settings: made, raising=False)
    return made


@pytest.mark.parametrize("lora", [[], ["model_settings.lora=4"]])
def test_an_engine_in_the_trainers_process_samples_from_the_weights_of_the_moment(small, tmp_path, engine, lora):
    lr = 0.02 if lora else 0.002
    settings = [f"trainer.lr={lr}", "trainer.steps=3", "trainer.eval_every=0", "evaluation.enabled=false"]
    train(small(*settings, *lora, "sampling.colocated.memory=0.4"), tmp_path / "run", quiet=True)
    records = RunFolder(tmp_path / "run").read_metrics()
    for record in records:
        assert 0 < record["sampler/gap/mean"] < 1e-4
        assert record["sampler/unknown"] == 0
        assert record["searches"] > 0
    assert engine.resets == 3
    assert engine.loads == 3 * len(engine.parameters)


def test_an_engine_needs_vllm_and_no_server_beside_it(small, tmp_path):
    with pytest.raises(UserError, match=r"sampling.colocated needs vLLM; pip install"):
        train(small("sampling.colocated={}"), tmp_path / "run", quiet=True)
    both = ["sampling.colocated={}", "sampling.server.url=http://127.0.0.1:9", "sampling.server.model=base"]
    with pytest.raises(UserError, match="keep one of them"):
        train(small(*both), tmp_path / "run", quiet=True)


def test_a_server_that_stays_behind_is_seen_and_corrected(small, tmp_path):
    records, _ = trained(small, tmp_path / "run", stale=True)
    assert records[0]["sampler/gap/mean"] < 1e-4
    assert records[-1]["sampler/gap/mean"] > 1e-3
    assert records[-1]["sampler/weight"] != pytest.approx(1, abs=1e-4)


def test_weights_are_ratios_cut_from_above_and_1_where_nothing_is_known():
    old = torch.log(torch.tensor([[0.4, 0.1, 0.9, 0.5, 0.5]]))
    sampled = torch.log(torch.tensor([[0.2, 0.4, 0.1, float("nan"), 0.1]]))
    mask = torch.tensor([[1, 1, 1, 1, 0]])
    weights = importance_weights(old, sampled, mask, 3.0)
    torch.testing.assert_close(weights, torch.tensor([[2.0, 0.25, 3.0, 1.0, 1.0]]))
    gap = SamplerGap()
    assert gap.metrics() == {}
    gap.add(old, sampled, mask, 3.0)
    found = gap.metrics()
    sizes = torch.tensor([2.0, 4.0, 9.0]).log()
    assert found["sampler/gap/mean"] == pytest.approx(sizes.mean().item())
    assert found["sampler/gap/max"] == pytest.approx(sizes.max().item())
    assert found["sampler/weight"] == pytest.approx((2 + 0.25 + 3) / 3)
    assert (found["sampler/cut"], found["sampler/unknown"]) == (pytest.approx(1 / 3), 1)


def test_weighted_rollouts_of_another_sampler_have_the_mean_of_the_policys_own():
    """E over the sampler of w·f is E over the policy of f, exactly, where no weight is cut."""
    policy, sampler = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    value = torch.tensor([1.0, -2.0, 5.0])
    weights = importance_weights(policy.log()[None], sampler.log()[None], torch.ones(1, 3), 10.0)[0]
    assert (sampler * weights * value).sum() == pytest.approx((policy * value).sum().item())


def test_weights_multiply_the_surrogate_and_no_term():
    objective = resolve("grpo+llds", {}, None, 0.1)
    torch.manual_seed(0)
    logp, old, ref = (torch.log(torch.rand(3, 5) * 0.9 + 0.05) for _ in range(3))
    advantages, mask = torch.tensor([1.0, -1.0, 0.5]), torch.ones(3, 5)
    weights = torch.rand(3, 5) + 0.5
    totals = StepTotals.of(mask, advantages)

    def loss(**given):
        return objective.token_loss(Tokens.build(logp, old, advantages, mask, ref, **given), totals)

    plain, weighted = loss(), loss(weights=weights)
    terms = sum(plain.terms.values())
    torch.testing.assert_close(weighted.loss, (plain.loss - terms) * weights + terms)
    torch.testing.assert_close(loss(weights=torch.ones(3, 5)).loss, plain.loss)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model_settings.lora=4", "schedule=search_e1"], "search_e1"),
        (["model_settings.lora=4"], "no vLLM server answers"),
    ],
)
def test_what_a_server_can_not_do_is_refused(small, tmp_path, settings, said):
    recipe = small(*settings, *SERVER, "sampling.server.url=http://127.0.0.1:9")
    with pytest.raises(UserError, match=said):
        train(recipe, tmp_path / "run", quiet=True)


def test_a_server_of_another_model_is_refused(small, tmp_path):
    recipe = small()
    with ServedModel(build_model(recipe), build_tokenizer(recipe)) as served:
        settings = [*LORA, "sampling.server.model=other", f"sampling.server.url={served.url}"]
        with pytest.raises(UserError, match="serves base"):
            train(small(*settings, "evaluation.enabled=false"), tmp_path / "run", quiet=True)
