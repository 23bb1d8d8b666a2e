"""A CPU as one of verl's platforms, for tests alone: verl itself knows NVIDIA, Huawei and AMD.

``VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda VERL_USE_EXTERNAL_MODULES=cpu_platform``; FSDP2 over gloo runs then.
"""

from contextlib import contextmanager

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class _Device:
    """``torch.cpu`` where it has what verl asks for; else functions that answer as a device without memory."""

    def __getattr__(self, name):
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name.startswith("__"):
            raise AttributeError(name)
        return {"get_device_name": lambda *a, **k: "CPU", "mem_get_info": lambda *a, **k: (0, 0)}.get(
            name, lambda *a, **k: 0
        )


_DEVICE = _Device()


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE)

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, message):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    # A logical GPU of Ray's, so that verl's resource pools work as they are.
    def ray_resource_name(self):
        return "GPU"

    def ray_resource_options(self, count):
        return {"num_gpus": count}

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None
