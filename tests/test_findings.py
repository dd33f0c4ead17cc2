"""Every rule fires on what it is about, keeps silent on what is right, and has its entry in the documentation."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.diff import compare
from fingerprint.findings import RULES, arrived, check, unread_part
from fingerprint.misspelling import misspelling_of
from fingerprint.report.differences import markdown
from snapshots import (
    CgroupLevel,
    CondaPackage,
    Cpu,
    Declared,
    Distribution,
    Gpu,
    GpuProcess,
    Gpus,
    Host,
    InfinibandPort,
    Library,
    Limits,
    Log,
    Measured,
    Nccl,
    NcclFile,
    NetworkInterface,
    NumaNode,
    Packages,
    PciDevice,
    Process,
    Running,
    Section,
    Server,
    Snapshot,
    Startup,
    StartupFile,
    Topology,
    Unread,
)


def by_unit(variables: dict[str, str]) -> Declared:
    return Declared(by="systemd", name="sglang.service", variables=dict(variables))


DOCS = Path(__file__).parents[1] / "docs" / "findings.md"


def snapshot(measured: Measured | None = None, **sections: Section) -> Snapshot:
    return Snapshot(
        tool="test", taken_at=datetime(2026, 1, 1, tzinfo=timezone.utc), target="here", measured=measured, **sections
    )


def process(role: str, number: int | None = None, **values: object) -> Process:
    defaults: dict[str, Any] = {
        "role": role,
        "rank": number,
        "pid": 1,
        "parent": 0,
        "title": role,
        "argv": ["python", "-m", "sglang.launch_server"],
        "executable": "/venv/bin/python",
        "cwd": "/srv",
        "started": 1.0,
        "at_exec": {},
        "variables": {},
    }
    return Process(**{**defaults, **values})


def served(
    launch: dict[str, str],
    *ranks: dict[str, str] | Unread,
    argv: list[str] | None = None,
    arguments: dict[str, Any] | None = None,
) -> Server:
    launcher = process("launcher", at_exec=launch, variables=launch, argv=["python", *(argv or [])])
    processes = {"launcher": launcher}
    for number, variables in enumerate(ranks):
        processes[f"rank {number}"] = process("rank", number, variables=variables)
    return Server(status="ok", engine="sglang", processes=processes, arguments=arguments or {})


def installed(
    *dists: str, duplicates: dict[str, list[str]] | None = None, files: dict[str, dict[str, str]] | None = None
) -> Packages:
    made = {}
    for dist in dists:
        name, _, version = dist.partition("==")
        made[name] = Distribution(version=version, location="/venv/lib/python3/site-packages")
    return Packages(status="ok", distributions=made, duplicates=duplicates or {}, files=files or {})


def mapped(*paths: str, deleted: bool = False) -> Server:
    libraries = {path: Library(path=path, deleted=deleted) for path in paths}
    return Server(status="ok", processes={"rank 0": process("rank", 0, libraries=libraries)})


PROTO = {"NCCL_PROTO": "LL"}
SITE = "/venv/lib/python3/site-packages"
TUNED = {"sglang": {"sglang/srt/layers/moe/configs/triton_3_5_1/E=8,N=128.json": "0" * 64}}


def draft_accepting(length: float) -> Measured:
    return Measured(metric="verify_ms", value=20.0, source="timer", accept_length=length)


def configured(text: str) -> Nccl:
    return Nccl(status="ok", files={"system": NcclFile(path="/etc/nccl.conf", text=text)})


def board(**values: object) -> Gpus:
    return Gpus(status="ok", gpus={"0000:17:00.0": Gpu.model_validate({"index": 0, **values})})


def machine(**values: object) -> Host:
    return Host(status="ok", cpu=Cpu.model_validate(values))


def nodes(number: int) -> Topology:
    return Topology(status="ok", nodes={str(n): NumaNode(cpus=f"{n}") for n in range(number)})


def below_a_bridge(width: int = 16, acs: list[str] | None = None, pci_id: str = "8086:352a") -> Topology:
    link = {"speed_max_gts": 32.0, "width_max": 16}
    gpu = {"kind": "gpu", "pci_id": "10de:2330", "width": 16, "above": ["0000:15:01.0"], **link}
    bridge = {"kind": "bridge", "pci_id": pci_id, "width": width, "acs": acs, **link}
    devices = {"0000:17:00.0": gpu, "0000:18:00.0": gpu, "0000:15:01.0": bridge}
    return Topology(status="ok", devices={name: PciDevice.model_validate(device) for name, device in devices.items()})


CASES: dict[str, tuple[Snapshot, Snapshot]] = {
    "FP101": (snapshot(server=served(PROTO, PROTO, {})), snapshot(server=served(PROTO, PROTO, Unread(unread="gone")))),
    "FP102": (snapshot(server=served(PROTO, {"NCCL_PROTO": "Simple"})), snapshot(server=served(PROTO, PROTO))),
    "FP103": (
        snapshot(server=served({}, {"A": "1"}, {"A": "2"})),
        snapshot(server=served({}, {"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"})),
    ),
    "FP104": (
        snapshot(server=served({"CCL_NET_GDR_LEVEL": "PHB"})),
        snapshot(server=served({"NCCL_NET_GDR_LEVEL": "PHB", "CCL_ZE_ENABLE": "1"})),
    ),
    "FP105": (
        snapshot(server=served({"VLLM_ATTENTION_BACKEND": "X"}), packages=installed("vllm==0.26.0")),
        snapshot(server=served({"VLLM_ATTENTION_BACKEND": "X"}), packages=installed("vllm==0.10.0")),
    ),
    "FP106": (
        snapshot(server=served({"CUDA_LAUNCH_BLOCKING": "1"})),
        snapshot(server=served({"CUDA_LAUNCH_BLOCKING": "0"})),
    ),
    "FP201": (
        snapshot(packages=installed("flashinfer-python==0.7.4", "flashinfer-cubin==0.6.13")),
        snapshot(packages=installed("flashinfer-python==0.7.4", "flashinfer-jit-cache==0.7.4+cu129")),
    ),
    "FP202": (
        snapshot(
            packages=Packages(
                status="ok",
                distributions={
                    "sglang": Distribution(
                        version="0.5.10", location=SITE, requires=["torch==2.9.1", "gone>3; extra == 'x'"]
                    ),
                    "torch": Distribution(version="2.8.0", location=SITE),
                },
            )
        ),
        snapshot(packages=installed("sglang==0.5.10", "torch==2.8.0")),
    ),
    "FP203": (
        snapshot(
            packages=Packages(
                status="ok",
                distributions={"torch": Distribution(version="2.8.0", location=SITE, altered={"torch/a.py": "5"})},
            )
        ),
        snapshot(packages=installed("torch==2.8.0")),
    ),
    "FP204": (
        snapshot(packages=installed(duplicates={"torch": ["2.8.0 in /a", "2.7.0 in /b"]})),
        snapshot(packages=installed("torch==2.8.0")),
    ),
    "FP205": (
        snapshot(packages=installed("nvidia-nccl-cu12==2.27.5", "nvidia-nccl-cu13==2.29.7")),
        snapshot(packages=installed("nvidia-nccl-cu12==2.27.5", "nvidia-cublas-cu13==13.1")),
    ),
    "FP206": (
        snapshot(server=mapped("/usr/lib/libnccl.so.2"), packages=installed("nvidia-nccl-cu12==2.27.5")),
        snapshot(server=mapped(f"{SITE}/nvidia/nccl/lib/libnccl.so.2"), packages=installed("nvidia-nccl-cu12==2.27.5")),
    ),
    "FP207": (snapshot(server=mapped("/usr/lib/a.so", deleted=True)), snapshot(server=mapped("/usr/lib/a.so"))),
    "FP208": (
        snapshot(packages=installed("triton==3.6.0", files=TUNED)),
        snapshot(packages=installed("triton==3.5.1", files=TUNED)),
    ),
    "FP209": (
        snapshot(
            startup=Startup(
                status="ok", files={"sitecustomize.py": StartupFile(path=f"{SITE}/sitecustomize.py", sha256="0" * 64)}
            )
        ),
        snapshot(
            startup=Startup(
                status="ok",
                files={
                    "distutils-precedence.pth": StartupFile(path=f"{SITE}/distutils-precedence.pth", sha256="0" * 64)
                },
            )
        ),
    ),
    "FP301": (
        snapshot(server=served({}, argv=["--disable-cuda-graph"])),
        snapshot(server=served({}, arguments={"disable_cuda_graph": False})),
    ),
    "FP302": (
        snapshot(
            server=served(
                {}, arguments={"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "/m/x-EAGLE3"}
            )
        ),
        snapshot(
            server=served(
                {}, arguments={"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "/m/x-EAGLE3"}
            )
        ),
    ),
    "FP303": (
        snapshot(measured=draft_accepting(1.0), server=served({}, arguments={"speculative_algorithm": "EAGLE"})),
        snapshot(measured=draft_accepting(2.8), server=served({}, arguments={"speculative_algorithm": "EAGLE"})),
    ),
    "FP304": (
        snapshot(server=served({}, {}, {}, argv=["--disable-custom-all-reduce"])),
        snapshot(server=served({}, {}, argv=["--disable-custom-all-reduce"])),
    ),
}


def boards(*gpus: dict[str, object]) -> Gpus:
    made = {f"0000:{17 + n}:00.0": Gpu.model_validate({"index": n, **values}) for n, values in enumerate(gpus)}
    return Gpus(status="ok", gpus=made)


LINKED: dict[str, object] = {"nvlinks": {"active": 18}}

CASES |= {
    "FP212": (
        snapshot(server=mapped(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12")),
        snapshot(
            server=mapped(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12")
        ),
    ),
    "FP408": (
        snapshot(gpu=boards(LINKED, LINKED, {}, LINKED)),
        snapshot(gpu=boards(LINKED, LINKED, LINKED, LINKED)),
    ),
    "FP409": (
        snapshot(gpu=board(power_now_w=589.1, power_limit_w=35.0)),
        snapshot(gpu=board(power_now_w=228.8, power_limit_w=210.0)),
    ),
}

CASES |= {
    "FP210": (
        snapshot(startup=Startup(status="ok", hidden={"torch": ["/srv/torch", f"{SITE}/torch"]})),
        snapshot(startup=Startup(status="ok")),
    ),
    "FP211": (
        snapshot(startup=Startup(status="ok", plugins={"sglang.srt.plugins mine": "mine:hook (mine)"})),
        snapshot(startup=Startup(status="ok", plugins={"torch.backends device": "torch_x:init (torch-x)"})),
    ),
    "FP107": (snapshot(nccl=configured("NCCL_IB_USE_INLINE=1\n")), snapshot(nccl=configured("# NCCL_PROTO=LL\n"))),
    "FP108": (
        snapshot(server=served(PROTO, PROTO).model_copy(update={"declared": by_unit({"NCCL_PROTO": "Simple"})})),
        snapshot(server=served(PROTO, PROTO).model_copy(update={"declared": by_unit({**PROTO, "LC_ALL": "C"})})),
    ),
    "FP401": (
        snapshot(gpu=board(pcie_width=8, pcie_width_max=16)),
        snapshot(gpu=board(pcie_width=16, pcie_width_max=16)),
    ),
    "FP402": (
        snapshot(gpu=board(pcie_generation_now=1, pcie_generation_max=5, utilization=99)),
        snapshot(gpu=board(pcie_generation_now=1, pcie_generation_max=5, utilization=0)),
    ),
    "FP403": (
        snapshot(topology=below_a_bridge(width=8)),
        snapshot(topology=below_a_bridge(width=8, pci_id="1af4:000c")),
    ),
    "FP404": (
        snapshot(gpu=board(power_limit_w=700.0, power_enforced_w=500.0, power_default_w=700.0)),
        snapshot(gpu=board(power_limit_w=700.0, power_enforced_w=700.0, power_default_w=700.0)),
    ),
    "FP405": (
        snapshot(gpu=board(event_reasons=["sw_power_cap"])),
        snapshot(gpu=board(event_reasons=["gpu_idle"])),
    ),
    "FP406": (
        snapshot(gpu=board(processes=[GpuProcess(pid=7, name="other", foreign=True)])),
        snapshot(gpu=board(processes=[GpuProcess(pid=7, name="sglang")])),
    ),
    "FP407": (
        snapshot(topology=below_a_bridge(acs=["SrcValid", "ReqRedir"])),
        snapshot(topology=below_a_bridge(acs=["SrcValid"])),
    ),
    "FP411": (
        snapshot(server=served({"A": "1"}), limits=Limits(status="ok", cpus=2.0), host=machine(online="0-15")),
        snapshot(
            server=served({"OMP_NUM_THREADS": "2"}), limits=Limits(status="ok", cpus=2.0), host=machine(online="0-15")
        ),
    ),
    "FP412": (
        snapshot(limits=Limits(status="ok", throttling={"nr_throttled": 3115, "nr_periods": 4567})),
        snapshot(limits=Limits(status="ok", throttling={"nr_throttled": 0, "nr_periods": 4567})),
    ),
    "FP413": (
        snapshot(host=machine(governors=["powersave"], frequency_driver=["acpi-cpufreq"])),
        snapshot(host=machine(governors=["powersave"], frequency_driver=["intel_pstate"])),
    ),
    "FP414": (
        snapshot(server=served({}, {}, {}), limits=Limits(status="ok", shared_memory_bytes=64 * 2**20)),
        snapshot(server=served({}, {}), limits=Limits(status="ok", shared_memory_bytes=64 * 2**20)),
    ),
    "FP415": (
        snapshot(host=Host(status="ok", sysctls={"kernel.numa_balancing": "1"}), topology=nodes(2)),
        snapshot(host=Host(status="ok", sysctls={"kernel.numa_balancing": "1"}), topology=nodes(1)),
    ),
    "FP416": (
        snapshot(host=Host(status="ok", numactl=False), topology=nodes(2)),
        snapshot(host=Host(status="ok"), topology=nodes(2)),
    ),
}


def beside(affinity: str, pid: int = 1) -> Snapshot:
    """Rank 0 on a GPU next to processors 32 to 63."""
    user = GpuProcess(pid=pid, name="sglang::schedul")
    rank = process("rank", 0, affinity=affinity)
    return snapshot(
        server=Server(status="ok", processes={"rank 0": rank}),
        gpu=board(processes=[user]),
        topology=Topology(status="ok", devices={next(iter(board().gpus)): PciDevice(kind="gpu", cpus="32-63")}),
    )


def ports(*rates: str, mtus: tuple[int, ...] = ()) -> Snapshot:
    made = {
        f"mlx5_{number} port 1": InfinibandPort(
            rate=rate, state="4: ACTIVE", link_layer="Ethernet", interfaces=[f"ens{number}"]
        )
        for number, rate in enumerate(rates)
    }
    made["mlx5_9 port 1"] = InfinibandPort(rate="10 Gb/sec", state="1: DOWN", link_layer="Ethernet")
    network = {f"ens{number}": NetworkInterface(mtu=mtu) for number, mtu in enumerate(mtus)}
    return snapshot(topology=Topology(status="ok", infiniband=made, network=network))


def counted(**events: int) -> Snapshot:
    level = CgroupLevel(path="/pod", memory_events=events)
    return snapshot(limits=Limits(status="ok", cgroup_levels={"0": CgroupLevel(path="/pod/x"), "1": level}))


def bound(affinity: str, *others: str) -> Snapshot:
    rank = process("rank", 0, affinity=affinity, thread_affinity=list(others), thread_names={"0-7": {"pool": 4}})
    return snapshot(server=Server(status="ok", processes={"rank 0": rank}))


FAST = "400 Gb/sec (4X NDR)"
CASES |= {
    "FP417": (beside("0-31,64"), beside("0-32")),
    "FP418": (ports(FAST, FAST, "200 Gb/sec (4X HDR)"), ports(FAST, FAST, FAST, mtus=(9000, 9000, 9000))),
    "FP420": (bound("0-3", "0-7"), bound("0-3", "2", "4-7")),
    "FP421": (snapshot(gpu=board(fabric=["in progress"])), snapshot(gpu=board(fabric=["completed"]))),
    "FP419": (counted(high=7, max=0), counted(high=0, max=0, oom=3)),
}


def test_a_port_whose_interface_has_small_packets_is_slower_too() -> None:
    (found,) = check(ports(FAST, FAST, FAST, mtus=(9000, 1500, 9000)))
    assert (found.code, found.key) == ("FP418", "topology/infiniband/mlx5_1 port 1")
    assert "an MTU of 1500" in found.text
    assert not check(ports(FAST, "200 Gb/sec (4X HDR)"))  # nobody says which of two is right


def test_a_rank_that_nvml_does_not_name_says_nothing_of_its_processors() -> None:
    assert "FP417" not in codes(beside("0-31", pid=99))


def codes(one: Snapshot) -> set[str]:
    return {finding.code for finding in check(one)}


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_rule_finds_its_fault_and_keeps_silent_without_it(code: str) -> None:
    fault, right = CASES[code]
    assert code in codes(fault)
    assert code not in codes(right)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (
            "FP206",
            snapshot(nccl=Nccl(status="ok", loaded={"rank 0": {"/x": "2.30.4+cuda13"}}, installed={"n": "2.27.5"})),
        ),
        ("FP208", snapshot(log=Log(status="ok", facts={"moe config": ["Using default MoE kernel config."]}))),
        ("FP301", snapshot(log=Log(status="ok", running=Running(graph=False)))),
    ],
)
def test_what_the_server_or_its_libraries_say_counts_too(code: str, fault: Snapshot) -> None:
    assert code in codes(fault)


@pytest.mark.parametrize("code", sorted(CASES))
def test_what_a_rule_finds_on_the_new_side_only_has_arrived_with_it(code: str) -> None:
    fault, right = CASES[code]
    assert code in {one.code for one, _before in arrived(right, fault)}
    assert code not in {one.code for one, _before in arrived(fault, fault)}
    assert code not in {one.code for one, _before in arrived(fault, right)}


def test_a_fault_where_the_old_side_was_not_read_may_have_been_there() -> None:
    fault = CASES["FP106"][0]
    ((finding, before),) = arrived(snapshot(), fault)
    assert (finding.code, before) == ("FP106", False)
    text = markdown(compare(snapshot(), fault))
    assert "FP106" in text
    assert "the old side was not read there" in text


def test_a_variable_that_no_file_of_the_engine_names_is_told_once() -> None:
    place = "/venv/lib/python3/site-packages/sglang"
    launched = served({"SGLANG_OLD_KNOB": "1", "SGLANG_ENABLE_SPEC_V2": "1"})
    packages = installed("sglang==0.5.23").model_copy(
        update={"unnamed": {"SGLANG_OLD_KNOB": place, "SGLANG_ENABLE_SPEC_V2": place}}
    )
    found = {one.key: one.text for one in check(snapshot(server=launched, packages=packages)) if one.code == "FP105"}
    assert set(found) == {"server/variables/SGLANG_OLD_KNOB", "server/variables/SGLANG_ENABLE_SPEC_V2"}
    assert "evidence" in found["server/variables/SGLANG_OLD_KNOB"]
    assert "--disable-overlap-schedule" in found["server/variables/SGLANG_ENABLE_SPEC_V2"]
    bare = snapshot(server=served({}), packages=installed("sglang==0.5.23"))
    comparison = compare(bare, snapshot(server=launched, packages=packages))
    (difference,) = comparison.find("variable:SGLANG_OLD_KNOB")
    assert any("no file of the installed engine names it" in reason.text for reason in difference.reasons)


def test_conda_and_pip_with_two_versions_of_one_library_are_told() -> None:
    packages = installed("nvidia-cublas-cu12==12.1.3.1")
    both = packages.model_copy(update={"conda": {"libcublas": CondaPackage(version="12.4.5.8", build="0")}})
    assert codes(snapshot(packages=both)) == {"FP212"}
    same = packages.model_copy(update={"conda": {"libcublas": CondaPackage(version="12.1.3.1", build="0")}})
    assert codes(snapshot(packages=same)) == set()


def test_an_nccl_of_the_installed_version_is_no_finding() -> None:
    loaded = {"rank 0": {"/x": "2.27.5+cuda12.9"}}
    assert codes(snapshot(nccl=Nccl(status="ok", loaded=loaded, installed={"n": "2.27.5"}))) == set()


def test_every_rule_has_a_case_and_an_entry_in_the_documentation() -> None:
    assert set(CASES) == set(RULES)
    page = DOCS.read_text(encoding="utf-8")
    for code, rule in RULES.items():
        assert f"## {code}: {rule.name}" in page
        assert all(source in page for source in rule.source.split(", ")), code


def test_nothing_is_found_where_nothing_was_read_and_that_is_said() -> None:
    empty = snapshot()
    assert check(empty) == []
    assert "server: absent" in unread_part(empty)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("CCL_NET_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
        ("NCLL_PROTO", "NCCL_PROTO"),
        ("SLGANG_ENABLE_SPEC_V2", "SGLANG_ENABLE_SPEC_V2"),
        ("NCCL_PROTO", None),
        ("RCCL_MSCCL_ENABLE", None),
        ("CCL_WORKER_COUNT", None),
        ("TOUCH_ME", None),
        ("PATH", None),
    ],
)
def test_a_name_one_slip_away_is_recognised_and_a_neighbouring_library_is_not(name: str, wanted: str | None) -> None:
    assert misspelling_of(name) == wanted


@given(st.text("ABCLNSGT_", max_size=12))
def test_any_name_may_be_asked_about(name: str) -> None:
    assert misspelling_of(name) != name
