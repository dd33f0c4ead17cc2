"""A platform for SGLang: any processor, with Triton's kernels run by Triton's own interpreter.

SGLang finds it through its two entry points. No file of SGLang is altered; where its in-tree code has kernels for some
devices only, the Triton kernel that it ships for another device is used. A target for tests, not for serving.
"""

from __future__ import annotations

import os


def activate() -> str | None:
    """The platform's class, where the launch asks for it."""
    return f"{__name__}.device.InterpretedCpu" if os.environ.get("SGLANG_PLATFORM") == __name__ else None


def register() -> None:
    """Put the portable kernels in place of those that are compiled for cards, and give the processor a clock."""
    import torch
    from sglang.kernels.ops.speculative import spec_tree
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from interpreted_cpu.device import Event

    torch.cpu.Event = Event

    def verify(*, topk=-1, **tensors):
        spec_tree.verify_tree_greedy_triton(**tensors)
        return tensors["predicts"], tensors["accept_index"], tensors["accept_token_num"]

    def build(*args, **kwargs):
        return spec_tree.sgl_build_tree_kernel_triton(*args, **kwargs)

    trees = spec_tree.__name__
    HookRegistry.register(f"{trees}.build_tree_kernel_efficient_func", build, HookType.REPLACE)
    HookRegistry.register(f"{trees}.verify_tree_greedy_func", verify, HookType.REPLACE)
    # The sampling kernels are compiled ones, too: as on SGLang's own processor platform, verify is always greedy.
    HookRegistry.register(
        "sglang.srt.speculative.eagle_utils._verify_uses_greedy", lambda _said, **_: True, HookType.AFTER
    )
