"""Sleuth's own sampler behind the interface of verl's servers: token ids in, token ids and log-probs out."""

import asyncio

import torch
from verl.workers.rollout.replica import TokenOutput

from sleuth.samplers.transformers import TransformersSampler
from sleuth.seeds import derive_seed
from sleuth.types import SampleRequest, SamplingParams, StopRule


class ServedPolicy:
    """Requests that come within a moment are sampled together. Stops at ``stop_token_ids``, as vLLM does."""

    def __init__(self, model, seed=0):
        self.model, self.seed, self.step = model, seed, 0
        self._sampler = TransformersSampler(model)
        self._waiting, self._drawn = [], 0

    async def generate(self, request_id, *, prompt_ids, sampling_params, **ignored):
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((prompt_ids, sampling_params, answer))
        if len(self._waiting) == 1:
            loop.call_later(0.01, self._sample)
        return await answer

    def update_weights(self, weights, step):
        self.model.load_state_dict(weights, strict=False)
        self.step = step

    def _sample(self):
        waiting, self._waiting = self._waiting, []
        requests = []
        for ids, params, _ in waiting:
            self._drawn += 1
            stops = frozenset(params["stop_token_ids"])
            rule = StopRule(lambda ids: True, stops, frozenset())
            seed = derive_seed(self.seed, self._drawn)
            requests.append(SampleRequest(self._drawn, list(ids), params["max_tokens"], rule, seed))
        with torch.no_grad():
            done = self._sampler.sample(requests, SamplingParams(waiting[0][1].get("temperature", 1.0)))
        self._sampler.release([request.key for request in requests])
        self._sampler.clear()
        for (_, _, answer), completion in zip(waiting, done, strict=True):
            steps = dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), self.step)
            answer.set_result(
                TokenOutput(
                    token_ids=completion.ids,
                    log_probs=completion.logprobs,
                    stop_reason="completed",
                    extra_fields=steps,
                )
            )


class Server:
    """A Ray actor that serves tokens, with the methods that verl's trainer calls on one."""

    def __init__(self, path):
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self._policy = ServedPolicy(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval())

    async def ready(self):
        return True

    async def generate(self, request_id, *, prompt_ids, sampling_params, **ignored):
        return await self._policy.generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)

    async def update_weights(self, weights, step):
        self._policy.update_weights(weights, step)

    async def _nothing(self, *args, **kwargs):
        pass

    wake_up = sleep = abort_all_requests = resume_generation = clear_kv_cache = _nothing
    release_kv_cache = resume_kv_cache = _nothing
