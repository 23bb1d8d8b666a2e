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


def _replica():
    import ray
    from served_policy import Server
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
