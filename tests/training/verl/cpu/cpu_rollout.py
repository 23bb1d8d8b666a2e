"""A rollout engine ``cpu`` for verl's whole trainer, for tests alone: :class:`served_policy.ServedPolicy` in an actor.

``VERL_USE_EXTERNAL_MODULES=cpu_rollout`` loads it, and the platform, in every process.
"""

import cpu_platform  # noqa: F401
import verl.utils.distributed as distributed
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry

_start_group = distributed.initialize_global_process_group_ray
distributed.initialize_global_process_group_ray = lambda timeout_second=None, backend=None: _start_group(
    timeout_second, backend or "cpu:gloo"
)

_NAME = "cpu_server_{}"


class Server:
    """The actor that serves tokens."""

    def __init__(self, path):
        import torch
        import verl  # noqa: F401
        from served_policy import ServedPolicy
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


def _replica():
    import ray
    from verl.workers.rollout.replica import RolloutReplica

    class Replica(RolloutReplica):
        async def launch_servers(self):
            name = _NAME.format(self.replica_rank)
            options = {"name": name, "num_cpus": 0, "max_concurrency": 200}
            server = ray.remote(Server).options(**options).remote(self.model_config.path)
            await server.ready.remote()
            self.servers = [server]
            self._server_handle, self._server_address = server, name

    return Replica


def _weights_to_server():
    import ray
    from verl.workers.rollout.base import BaseRollout

    class WeightsToServer(BaseRollout):
        async def resume(self, tags):
            pass

        async def release(self):
            pass

        async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **ignored):
            plain = {name: values.detach().float().clone() for name, values in weights}
            await ray.get_actor(_NAME.format(0)).update_weights.remote(plain, global_steps)

    return WeightsToServer


def __getattr__(name):
    if name == "WeightsToServer":
        return _weights_to_server()
    raise AttributeError(name)


RolloutReplicaRegistry.register("cpu", _replica)
base._ROLLOUT_REGISTRY[("cpu", "async")] = "cpu_rollout.WeightsToServer"
