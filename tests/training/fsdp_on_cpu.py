"""``sleuth`` with FSDP2 on a CPU: accelerate shards on accelerators alone, and here it takes a CPU for one.

Run as ``python fsdp_on_cpu.py ARGUMENTS`` by a launcher, with :data:`ENVIRONMENT`.
"""

ENVIRONMENT = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
"""What ``accelerate launch`` makes of examples/accelerate/fsdp2.yaml."""


def main():
    from accelerate import state
    from accelerate.utils import DistributedType

    made = state.AcceleratorState.__init__

    def sharding(self, *args, fsdp_plugin=None, **kwargs):
        made(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type = state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin

    state.AcceleratorState.__init__ = sharding

    from torch.distributed.fsdp import FSDPModule

    from sleuth.cli import main as sleuth
    from sleuth.training.trl import SearchGRPOTrainer

    answered = SearchGRPOTrainer._answer

    def sharded(self, *args):
        assert any(isinstance(module, FSDPModule) for module in self.model.modules()), "nothing is sharded"
        return answered(self, *args)

    SearchGRPOTrainer._answer = sharded
    sleuth()


if __name__ == "__main__":
    main()
