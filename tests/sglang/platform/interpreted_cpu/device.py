"""The processor as a device: what SGLang asks of a platform, and events that can be timed."""

from __future__ import annotations

import time

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class Event:
    """A mark in the device's stream of work, as SGLang's device timer sets it around every forward pass.

    The device is the processor, so its clock is the processor time of this process: as on a card, time in which
    somebody else had the device is not part of a pass.
    """

    def __init__(self, *, enable_timing: bool = False, **_: object) -> None:
        self._at = 0.0

    def record(self, _stream: object = None) -> None:
        self._at = time.process_time()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from here to `end`."""
        return 1e3 * (end._at - self._at)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait(self, _stream: object = None) -> None:
        pass


class InterpretedCpu(CpuDeviceMixin, SRTPlatform):
    """Everything is as on the in-tree processor platform, but kernels are Triton's."""

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities(supports_triton=True)

    def get_default_attention_backend(self):
        return "triton"

    def get_default_speculative_draft_attention_backend(self, algorithm):
        return "triton"

    def supports_speculative_algorithm(self, algorithm):
        return algorithm is not None

    def supports_speculative_draft_attention_backend(self, algorithm, backend):
        return backend == "triton"

    def get_speculative_cache_locs_fn(self):
        return cache_locations

    def get_compile_backend(self, mode=None):
        return "eager"

    def get_dispatch_key_name(self):
        return "native"

    def is_pin_memory_available(self, device=None):
        return False


def cache_locations(
    *, req_pool_indices, req_to_token, start_offset, end_offset, batch_size, draft_token_num, device
) -> torch.Tensor:
    """Cache slots of every request's drafted tokens, one after the other."""
    rows = [
        req_to_token[request, begin:end]
        for request, begin, end in zip(
            req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True
        )
    ]
    return torch.cat(rows)[: batch_size * draft_token_num].to(device=device, dtype=torch.int64)
