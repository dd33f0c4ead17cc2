"""The machine, and what the server may use of it."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes import host, limits
from probes.secrets import Keeper
from snapshots import Host, Limits, identity_digest

KEEPER = Keeper(b"a key of the tests")


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_this_machine_is_read_and_twice_the_same() -> None:
    first, second = (Host.model_validate(host.collect("/", KEEPER)) for _ in range(2))
    assert first.kernel == os.uname().release
    assert first.machine == os.uname().machine
    assert first.cpu.model
    assert identity_digest(first) == identity_digest(second)


def test_every_value_that_occurs_is_told_once(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor": "performance\n" if number else "powersave\n"
            for number in range(8)
        }
        | {
            "sys/devices/system/cpu/cpu0/cpuidle/state3/disable": "1\n",
            "sys/devices/system/cpu/cpu0/cpuidle/state3/name": "C6\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            "proc/cpuinfo": "model name\t: Some CPU\nmicrocode\t: 0xd0\nphysical id\t: 0\n\nphysical id\t: 1\n"
            "flags\t\t: fpu hypervisor\n",
            "sys/class/dmi/id/sys_vendor": "QEMU\n",
            "proc/cmdline": "quiet iommu=pt token=abcd1234efgh\n",
            "proc/stat": "cpu  1 2 3 4 5 6 7 88 9 10\n",
        },
    )
    found = Host.model_validate(host.collect(root, KEEPER))
    assert found.cpu.governors == ["performance", "powersave"]
    assert found.cpu.idle_disabled == ["C6"]
    assert (found.cpu.model, found.cpu.microcode, found.cpu.sockets) == ("Some CPU", "0xd0", 2)
    assert found.huge_pages == {"enabled": "madvise"}
    assert found.sysctls == {"kernel.numa_balancing": "1"}
    assert found.virtualization == "kvm"
    assert found.steal_ticks == 88
    assert found.command_line is not None
    assert found.command_line.startswith("quiet iommu=pt token=<secret:")


def test_drivers_profile_linker_and_page_merging_are_told(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/modules": "nvidia 9 0 - Live 0x0\nmlx5_core 9 0 - Live 0x0\next4 1 0 - Live 0x0\n",
            "sys/module/nvidia/version": "580.159.04\n",
            "sys/module/mlx5_core/parameters/prof_sel": "2\n",
            "sys/module/mlx5_core/parameters/of_root": "1\n",
            "sys/module/ext4/parameters/x": "1\n",
            "etc/tuned/active_profile": "balanced\n",
            "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n/opt/own/lib # ours\n",
            "etc/ld.so.conf.d/b.conf": "/usr/local/cuda/lib64\n/opt/own/lib\n",
            "etc/ld.so.conf.d/a.conf": "# none\n/usr/local/nccl/lib\n",
            "etc/ld.so.conf.d/README": "/not/read\n",
            "sys/kernel/mm/ksm/run": "1\n",
        },
    )
    (tmp_path / "sys/module/mlx5_core/parameters/of_root").chmod(0o600)
    os.mkfifo(tmp_path / "etc/ld.so.conf.d/c.conf")
    found = Host.model_validate(host.collect(root, KEEPER))
    assert found.modules == ["mlx5_core", "nvidia"]
    assert found.module_parameters == {"mlx5_core.prof_sel": "2"}
    assert found.module_versions == {"nvidia": "580.159.04"}
    assert (found.tuned_profile, found.page_merging) == ("balanced", "1")
    assert found.library_directories == ["/opt/own/lib", "/usr/local/nccl/lib", "/usr/local/cuda/lib64"]


def test_a_machine_that_shows_nothing_is_none_and_not_zero(tmp_path: Path) -> None:
    found = Host.model_validate(host.collect(str(tmp_path), KEEPER))
    assert (found.kernel, found.memory_kib, found.steal_ticks, found.clocksource) == (None, None, None, None)


def test_the_least_of_quota_set_and_affinity_counts() -> None:
    assert limits.effective_cpus([{"cpu.max": "400000 100000"}, {"cpu.max": "max 100000"}], "0-63") == 4.0
    assert limits.effective_cpus([{"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}], "0-3,8") == 5
    assert limits.effective_cpus([{}, {"cpuset.cpus.effective": "0-1"}], "0-3") == 2
    assert limits.effective_cpus([{"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}], None) == 0.5
    assert limits.effective_cpus([], None) is None


def process(root: Path, cgroup: str) -> None:
    write(
        root,
        {
            "proc/7/status": "Name:\tx\nCpus_allowed_list:\t0-7\nCapEff:\t0000\nSeccomp:\t2\nNoNewPrivs:\t1\n",
            "proc/7/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max locked memory         8388608              8388608              bytes     \n"
            "Max open files            1024                 1048576              files     \n"
            "Max cpu time              unlimited            unlimited            seconds   \n",
            "proc/7/cgroup": cgroup,
        },
    )


def test_a_limit_on_an_ancestor_is_a_limit(tmp_path: Path) -> None:
    process(tmp_path, "0::/kubepods/burstable/pod1/cri-containerd-0123456789abcdef.scope\n")
    base = "sys/fs/cgroup"
    root = write(
        tmp_path,
        {
            f"{base}/cgroup.procs": "",
            f"{base}/kubepods/burstable/pod1/cpu.max": "400000 100000\n",
            f"{base}/kubepods/burstable/pod1/cpu.stat": "nr_periods 10\nnr_throttled 3115\nthrottled_usec 77\n",
            f"{base}/kubepods/burstable/pod1/cri-containerd-0123456789abcdef.scope/cpu.max": "max 100000\n",
            f"{base}/kubepods/burstable/pod1/cri-containerd-0123456789abcdef.scope/memory.max": "1073741824\n",
            f"{base}/kubepods/memory.max": "max\n",
            f"{base}/kubepods/burstable/pod1/memory.events": "low 0\nhigh 12\nmax 3\noom 0\noom_kill x\n",
            "proc/7/attr/current": "system_u:system_r:container_t:s0:c123,c456\n",
        },
    )
    found = Limits.model_validate(limits.collect(root, 7))
    assert found.cpus == 4.0
    assert found.memory_bytes == 1 << 30
    assert found.cgroup_levels["1"].settings == {"cpu.max": "400000 100000"}
    assert found.throttling == {"nr_periods": 10, "nr_throttled": 3115, "throttled_usec": 77}
    assert found.limits == {"locked memory": "8388608", "open files": "1024", "cpu time": "unlimited"}
    assert found.container["kind"] == "cri-containerd"
    assert found.privileges["Seccomp"] == "2"
    assert found.privileges["label"] == "system_u:system_r:container_t:s0"
    assert found.cgroup_levels["1"].memory_events == {"high": 12, "max": 3, "oom": 0}


@pytest.mark.parametrize(
    ("cgroup", "path", "told", "expected"),
    [
        (
            "0::/system.slice/docker-{}.scope\n",
            "var/lib/docker/containers/{}/config.v2.json",
            {"Image": "sha256:5f", "Config": {"Image": "lmsysorg/sglang:v0.5.5", "Env": ["HF_TOKEN=hf_x"]}},
            {"kind": "docker", "image": "lmsysorg/sglang:v0.5.5", "imageid": "sha256:5f"},
        ),
        (
            "0::/kubepods/pod1/cri-containerd-{}.scope\n",
            "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
            {"annotations": {"io.kubernetes.cri.image-name": "registry/sglang@sha256:5f"}},
            {"kind": "cri-containerd", "image": "registry/sglang@sha256:5f"},
        ),
        ("0::/docker/{}\n", "var/lib/docker/containers/{}/config.v2.json", ["no", "table"], {"kind": "docker"}),
        ("0::/docker/{}\n", "elsewhere", {}, {"kind": "docker"}),
    ],
)
def test_the_image_of_a_container_is_read_where_its_engine_wrote_it_down(
    tmp_path: Path, cgroup: str, path: str, told: object, expected: dict[str, str]
) -> None:
    number = "0123456789abcdef" * 4
    process(tmp_path, cgroup.format(number))
    root = write(tmp_path, {"sys/fs/cgroup/cgroup.procs": "", path.format(number): json.dumps(told)})
    assert limits.collect(root, 7)["container"] == {"id": number, **expected}


def test_counters_are_state_and_limits_are_identity(tmp_path: Path) -> None:
    process(tmp_path, "0::/job\n")
    base = "sys/fs/cgroup"
    root = write(tmp_path, {f"{base}/cgroup.procs": "", f"{base}/job/cpu.max": "400000 100000"})
    digests = []
    for change in ({}, {f"{base}/job/cpu.stat": "nr_throttled 5\n"}, {f"{base}/job/cpu.max": "200000 100000"}):
        write(tmp_path, change)
        digests.append(identity_digest(Limits.model_validate(limits.collect(root, 7))))
    assert digests[0] == digests[1] != digests[2]


def test_the_old_hierarchy_and_the_hybrid_are_read(tmp_path: Path) -> None:
    process(tmp_path, "4:memory:/job/abc\n3:cpuset:/\n1:cpu,cpuacct:/job\n0::/\n")
    base = "sys/fs/cgroup"
    root = write(
        tmp_path,
        {
            f"{base}/unified/cgroup.procs": "",
            f"{base}/cpu,cpuacct/job/cpu.cfs_quota_us": "300000\n",
            f"{base}/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            f"{base}/memory/job/memory.limit_in_bytes": "536870912\n",
            f"{base}/memory/job/abc/memory.limit_in_bytes": "9223372036854771712\n",
            f"{base}/cpuset/cpuset.cpus": "0-15\n",
        },
    )
    found = Limits.model_validate(limits.collect(root, 7))
    assert found.cpus == 3.0
    assert found.memory_bytes == 536870912


def test_this_process_has_the_limits_that_python_sees(context: Callable[..., dict[str, Any]]) -> None:
    found = Limits.model_validate(limits.read({**context(), "serving": {"pid": os.getpid()}}))
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert isinstance(found.limits, dict)
    assert found.limits["open files"] == str(soft)
    assert found.cpus is not None
    assert 0 < found.cpus <= len(os.sched_getaffinity(0))


def test_without_a_server_there_is_nothing_to_limit(context: Callable[..., dict[str, Any]]) -> None:
    assert limits.read(context())["status"] == "absent"


def test_modules_and_daemons_that_have_a_say_are_told_and_no_others(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 2 1 nvidia_uvm, Live 0x0\nnvidia_peermem 1 0 - Live\n"
            "ext4 3 1 - Live 0x0\nmy_nvidia 1 0 - Live 0x0\ngdrdrv 1 0 - Live 0x0\n",
            "proc/12/comm": "nvidia-cuda-mps\n",
            "proc/13/comm": "nvidia-cuda-mps\n",
            "proc/14/comm": "bash\n",
            "proc/15/status": "",
        },
    )
    found = Host.model_validate(host.collect(root, KEEPER))
    assert found.modules == ["gdrdrv", "nvidia", "nvidia_peermem", "nvidia_uvm"]
    assert found.daemons == ["MPS"]
