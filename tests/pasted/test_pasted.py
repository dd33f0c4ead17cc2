"""Snapshots of pasted reports: what each form says, and that nothing more is claimed."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.diff import compare
from fingerprint.errors import UsageError
from fingerprint.factors import Evidence, find
from fingerprint.findings import check
from fingerprint.pasted import imported, lists, matrix, nccl, smi
from snapshots import (
    Distribution,
    Gpu,
    Gpus,
    Interpreter,
    Packages,
    PciDevice,
    Process,
    Server,
    Snapshot,
    Topology,
    Unread,
    load,
)

NOW = datetime(2031, 1, 1, tzinfo=timezone.utc)

PCIE = """
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PIX     NODE    SYS     0-23,48-71      0               N/A
GPU1    PIX      X      NODE    SYS     0-23,48-71      0               N/A
GPU2    NODE    NODE     X      SYS     0-23,48-71      0               N/A
GPU3    SYS     SYS     SYS      X      24-47,72-95     1               N/A
"""


def topo(text: str) -> matrix.Matrix:
    read = matrix.topo(text)
    assert isinstance(read, matrix.Matrix), read
    return read


def report(text: str) -> Snapshot:
    return imported(text, "ticket.txt", now=lambda: NOW)


# ---------------------------------------------------------------------------------------------------------------------
# NCCL's topology

DUMPED = """
<system version="1"><cpu numaid="-1" arch="x86_64" vendor="AuthenticAMD">
 <pci busid="0000:bf:00.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">
  <pci busid="0000:c1:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="0">
   <nic><net name="mlx5_0" speed="400000"/></nic>
  </pci>
 </pci>
 <pci busid="0000:C9:00.0" class="0x030200" vendor="0x10de" device="0x2335" link_speed="" link_width=""/>
</cpu><cpu numaid="1"><pci busid="0000:d0:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"/></cpu>
</system>
"""


def test_what_nccl_did_not_find_out_is_no_value_and_a_guest_s_bridge_no_slow_link() -> None:
    found = report(DUMPED).topology
    bridge, card, gpu, other = (found.devices[f"0000:{bus}:00.0"] for bus in ("bf", "c1", "c9", "d0"))
    assert (bridge.kind, bridge.speed_max_gts, bridge.width_max, bridge.above) == ("bridge", 2.5, 1, [])
    assert (card.kind, card.speed_max_gts, card.width_max, card.node) == ("network", 32.0, None, None)
    assert card.above == ["0000:bf:00.0"]
    assert (gpu.kind, gpu.pci_id, gpu.speed_max_gts, gpu.width_max, gpu.above) == ("gpu", "10de:2335", None, None, [])
    assert (other.node, other.speed_max_gts, other.width_max) == (1, None, None)  # it may be that of the moment
    assert found.limit("0000:c1:00.0") is None  # the width of today is not told
    assert not check(report(DUMPED))


def test_a_dumped_topology_is_compared_with_a_capture_in_what_it_tells() -> None:
    now = PciDevice(kind="network", pci_id="15b3:1021", speed_max_gts=16.0, width=8, node=0, driver="mlx5_core")
    live = Snapshot(
        tool="test", taken_at=NOW, target="here", topology=Topology(status="ok", devices={"0000:c1:00.0": now})
    )
    found = {item.name: (item.old, item.new) for item in compare(report(DUMPED), live).differences}
    assert found["topology/devices/0000:c1:00.0/speed_max_gts"] == (32.0, 16.0)
    assert not [name for name in found if name.endswith(("/width", "/width_max", "/driver", "/pci_id", "/node"))]


@given(st.text('<>/"= cpusytembid0123:.-x', max_size=200))
def test_no_text_breaks_the_tree(text: str) -> None:
    assert all(device["kind"] for device in nccl.devices(f'<system version="1">{text}').values())


# ---------------------------------------------------------------------------------------------------------------------
# matrices


def test_a_matrix_of_four_gpus_has_every_pair_and_place() -> None:
    read = topo(PCIE)
    assert read.gpus == ("GPU0", "GPU1", "GPU2", "GPU3")
    assert [read.paths[pair] for pair in (("GPU0", "GPU1"), ("GPU0", "GPU2"), ("GPU3", "GPU0"))] == [
        "PIX",
        "NODE",
        "SYS",
    ]
    assert read.cpus["GPU3"] == "24-47,72-95"
    assert list(read.nodes.values()) == [0, 0, 0, 1]


def test_two_tabs_before_the_last_column_shift_nothing_and_the_legend_names_cards() -> None:
    read = topo(
        "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\tPIX\tSYS\t0-79\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tSYS\tPIX\t80-159\t1\t\tN/A\n"
        "NIC0\tPIX\tSYS\t X \tSYS\n"
        "NIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_0\n"
    )
    assert read.devices == ("GPU0", "GPU1", "mlx5_0", "mlx5_bond_0")
    assert read.nodes == {"GPU0": 0, "GPU1": 1}
    assert read.nearest("GPU0") == ("mlx5_0",)
    assert read.nearest("GPU1") == ("mlx5_bond_0",)


def test_columns_that_a_terminal_pushed_together_come_apart() -> None:
    read = topo(
        "        GPU0    GPU1    NIC8NIC9        CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV12    NODENODE        0-31    0\n"
        "GPU1    NV12     X      SYS SYS         32-63   1\n"
        "NIC8    NODE    SYS      X     PIX\n"
        "NIC9    NODE    SYS     PIX     X\n"
    )
    assert read.paths["GPU0", "NIC9"] == "NODE"
    assert read.cpus == {"GPU0": "0-31", "GPU1": "32-63"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PCIE.replace("NODE    SYS     0-23", "NODE    0-23", 1), "its head has 4 devices and the row of GPU0 3 cells"),
        (
            PCIE.replace("GPU3    SYS     SYS     SYS      X      24-47,72-95     1               N/A\n", ""),
            "no row for GPU3",
        ),
        (PCIE.replace("GPU1    PIX", "GPU1    PXB"), "in one direction"),
    ],
)
def test_a_matrix_that_is_not_whole_is_refused_and_never_shifted(text: str, why: str) -> None:
    read = matrix.topo(text)
    assert isinstance(read, str)
    assert why in read
    assert report(text + "torch==2.8.0\n").gpu.links == {}


def test_a_gpu_that_fell_off_nvlink_is_said() -> None:
    text = (
        "        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      NV18    NODE    NV18    0-55    0               N/A\n"
        "GPU1    NV18     X      NODE    NV18    0-55    0               N/A\n"
        "GPU2    NODE    NODE     X      NODE    0-55    0               N/A\n"
        "GPU3    NV18    NV18    NODE     X      0-55    0               N/A\n"
    )
    assert topo(text).apart() == ("GPU2",)
    assert topo(PCIE).apart() == ()
    section = report(text).gpu
    assert section.reason == "GPU2 has no NVLink and all the others have"
    assert (section.links["GPU0 GPU1"].path, section.links["GPU0 GPU1"].p2p) == (None, {"nvlink": "ok"})
    assert (section.links["GPU0 GPU2"].path, section.links["GPU0 GPU2"].p2p) == ("NODE", {})


def test_one_gpu_alone_is_a_matrix_too() -> None:
    read = topo(
        "        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID\nGPU0     X      0-15    0               N/A\n"
    )
    assert read.paths == {("GPU0", "GPU0"): "X"}


def test_numa_nodes_stay_as_they_were_read() -> None:
    read = topo(
        "        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NV4     SYS     SYS     SYS     18-23,66-71     3\n"
        "GPU1    NV4      X      SYS     SYS     SYS     12-17,60-65     2\n"
        "GPU2    SYS     SYS      X      NV4     SYS     6-11,54-59      1\n"
        "GPU3    SYS     SYS     NV4      X      PHB     0-5,48-53       0\n"
        "mlx5_0  SYS     SYS     SYS     PHB      X\n"
    )
    assert list(read.nodes.values()) == [3, 2, 1, 0]
    assert {pair for pair, path in read.paths.items() if path == "NV4"} == {
        ("GPU0", "GPU1"), ("GPU1", "GPU0"), ("GPU2", "GPU3"), ("GPU3", "GPU2"),
    }  # fmt: skip


def test_time_stamps_of_a_log_and_colours_of_a_terminal_do_no_harm() -> None:
    lines = ["NVIDIA Topology:", *PCIE.strip("\n").splitlines()]
    stamped = [f"INFO 2031-01-02T03:04:05.00000000{n}Z {line}" for n, line in enumerate(lines)]
    assert topo("\n".join(stamped)) == topo(PCIE)
    coloured = PCIE.replace("GPU0    GPU1    GPU2", "\x1b[4mGPU0    GPU1    GPU2", 1).replace(
        "GPU NUMA ID", "GPU NUMA ID\x1b[0m"
    )
    assert topo(coloured) == topo(PCIE)


ROCM = """
================================ Weight between two GPUs =================================
       GPU0         GPU1         GPU2
GPU0   0            15           30
GPU1   15           0            45
GPU2   30           45           0

================================= Hops between two GPUs ==================================
       GPU0         GPU1         GPU2
GPU0   0            1            2
GPU1   1            0            3
GPU2   2            3            0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         XGMI
GPU1   XGMI         0            PCIE
GPU2   XGMI         PCIE         0

======================================= Numa Nodes =======================================
GPU[0]          : (Topology) Numa Node: 0
GPU[1]          : (Topology) Numa Affinity: -1
"""


def test_amd_s_three_matrices_are_three() -> None:
    read = matrix.rocm(ROCM)
    assert read is not None
    assert read.weights["GPU1", "GPU2"] == 45
    assert read.hops["GPU0", "GPU2"] == 2
    assert read.kinds["GPU1", "GPU2"] == "PCIE"
    assert ("GPU0", "GPU0") not in read.kinds
    assert read.nodes == {"GPU0": 0, "GPU1": None}
    assert matrix.rocm(PCIE) is None
    assert report(ROCM).gpu.links["GPU1 GPU2"].path == "PCIE"


@given(st.text(alphabet="GPU01 XNVSY8\n\t", max_size=300))
def test_no_text_breaks_the_matrix(text: str) -> None:
    read = matrix.topo(text)
    assert read is None or isinstance(read, (str, matrix.Matrix))
    if isinstance(read, matrix.Matrix):
        assert len(read.paths) == len(read.devices) ** 2


# ---------------------------------------------------------------------------------------------------------------------
# nvidia-smi -q

SMI = """
==============NVSMI LOG==============

Driver Version                                         : 580.159.04
CUDA Version                                           : 13.0

Attached GPUs                                          : 2
GPU 00000000:00:06.0
    Product Name                                       : NVIDIA H200
    Persistence Mode                                   : Enabled
    MIG Mode
        Current                                        : Disabled
    Clocks Throttle Reasons
        Idle                                           : Active
        SW Power Cap                                   : Active
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Not Active
    PCI
        GPU Link Info
            PCIe Generation
                Max                                    : 5
                Current                                : 1
            Link Width
                Max                                    : 16x
                Current                                : 8x
    Temperature
        GPU Current Temp                               : 31 C
        GPU Shutdown T.Limit Temp                      : -8 C
    GPU Power Readings
        Average Power Draw                             : 79.80 W
        Current Power Limit                            : 500.00 W
        Requested Power Limit                          : 600.00 W
        Default Power Limit                            : 700.00 W
    GPU Memory Power Readings 
        Average Power Draw                             : 49.10 W
    Module Power Readings
        Average Power Draw                             : N/A
    Max Clocks
        SM                                             : 1980 MHz
GPU 00000000:00:07.0
    Product Name                                       : N/A
    Persistence Mode                                   : N/A
    GPU UUID                                           : N/A
"""  # noqa: W291 - the tool writes that blank


def test_the_same_name_in_several_sections_is_several_values() -> None:
    host, gpus = smi.sections(SMI)
    values = gpus["0000:00:06.0"]
    assert host["driver version",] == "580.159.04"
    assert smi.number(values, "gpu power readings", "average power draw") == 79.8
    assert smi.number(values, "gpu memory power readings", "average power draw") == 49.1
    assert smi.number(values, "module power readings", "average power draw") is None
    assert smi.number(values, "temperature", "gpu shutdown t.limit temp") == -8


def test_a_pasted_nvidia_smi_becomes_the_gpus() -> None:
    section = report(SMI).gpu
    one, other = section.gpus["0000:00:06.0"], section.gpus["0000:00:07.0"]
    assert isinstance(one, Gpu)
    assert (section.driver, section.cuda, one.name) == ("580.159.04", "13.0", "NVIDIA H200")
    assert (one.power_limit_w, one.power_enforced_w, one.power_default_w, one.power_now_w) == (600, 500, 700, 79.8)
    assert (one.pcie_width, one.pcie_width_max, one.mig, one.persistence) == (8, 16, 0, True)
    assert one.event_reasons == ["sw_power_cap"]
    assert other == Unread(unread="nvidia-smi: all readings N/A")


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("GPU 0000:0B:00.0: Unknown Error", "0000:0b:00.0"),
        ("GPU0000:07:00.0: Unknown Error", "0000:07:00.0"),
        ("GPU 000:BA:80.0: Unknown Error", "0000:ba:80.0"),
    ],
)
def test_a_gpu_without_a_handle_is_unread_in_every_spelling_and_the_others_are_there(line: str, where: str) -> None:
    section = report(f"Unable to determine the device handle for {line}\n{SMI}").gpu
    assert section.gpus[where] == Unread(unread="nvidia-smi: Unknown Error")
    assert isinstance(section.gpus["0000:00:06.0"], Gpu)


def test_a_library_that_does_not_match_is_a_reason_with_its_version() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\ntorch==2.8.0\n"
    assert report(text).gpu.driver == Unread(unread="NVML: Driver/library version mismatch (library 570.124)")


# ---------------------------------------------------------------------------------------------------------------------
# lists

FREEZE = """
certifi @ file:///home/conda/feedstock_root/build_artifacts/certifi_1/srv/certifi
vcs @ git+https://bob:s3cret@git.example.org/a/vcs.git@0123456789abcdef0123456789abcdef01234567#subdirectory=python
arch @ https://x.example/arch-1.0-py3-none-any.whl#sha256=aa
# Editable install with no version control (edit==1.0)
-e /srv/edit
-e git+ssh://git@git.example.org/a/lib.git@89abcdef0123456789abcdef0123456789abcdef#egg=lib
badver===2.0.0-special~3
flashinfer_python==0.2.5
"""


def test_every_line_of_pip_freeze_is_a_package_and_no_path_is_a_version() -> None:
    found = lists.read(FREEZE)
    assert found.packages == {
        "certifi": None, "vcs": None, "arch": "1.0", "edit": "1.0", "lib": None, "badver": "2.0.0-special~3",
        "flashinfer-python": "0.2.5",
    }  # fmt: skip
    assert found.editable == {"edit", "lib"}
    assert "s3cret" not in str(found)
    assert "certifi" not in found.origins


def test_conda_lines_keep_build_and_channel_and_pip_s_packages_are_counted_once() -> None:
    found = lists.read(
        "[conda] libcublas                 12.4.5.8                      0    nvidia\n"
        "[conda] nvidia-cublas-cu12        12.1.3.1                 pypi_0    pypi\n"
        "[conda] pytorch-cuda              12.4                 hc786d27_7    pytorch\n"
        "[pip3] nvidia-cublas-cu12==12.1.3.1\n"
    )
    assert found.conda == {
        "libcublas": ("12.4.5.8", "0", "nvidia"),
        "pytorch-cuda": ("12.4", "hc786d27_7", "pytorch"),
    }
    assert found.packages == {"nvidia-cublas-cu12": "12.1.3.1"}


VLLM = """
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
Clang version                : Could not collect

==============================
      Python Environment
==============================
Python version               : 3.12.11 (main, Jun  4 2025) [GCC 13.3.0] (64-bit runtime)
Python platform              : Linux-5.15.0-91-generic-x86_64-with-glibc2.35

==============================
       CUDA / GPU Info
==============================
GPU models and configuration :
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version        : 570.124.06

==============================
Versions of relevant libraries
==============================
[pip3] flashinfer-python==0.2.14.post1
[pip3] torch==2.7.1

==============================
     Environment Variables
==============================
NCCL_SOCKET_IFNAME=ib0
CUDA_HOME=/opt/cuda
CUDA_HOME=/opt/cuda
NCCL_PROTO=LL
NCCL_PROTO=Simple
"""


def test_banners_and_padded_colons_hold_no_values() -> None:
    snapshot = report(VLLM)
    assert snapshot.host.system == {"PRETTY_NAME": "Ubuntu 22.04.5 LTS (x86_64)"}
    assert snapshot.host.kernel == "5.15.0-91-generic"
    assert snapshot.packages.interpreter is not None
    assert snapshot.packages.interpreter.version == "3.12.11"
    assert {name: one.version for name, one in snapshot.packages.distributions.items()} == {
        "flashinfer-python": "0.2.14.post1", "torch": "2.7.1",
    }  # fmt: skip
    assert snapshot.gpu.driver == "570.124.06"
    assert set(snapshot.gpu.gpus) == {"GPU0", "GPU1"}


def test_a_variable_told_twice_is_one_and_told_differently_is_a_conflict() -> None:
    found = lists.read(VLLM)
    assert found.variables == {"NCCL_SOCKET_IFNAME": "ib0", "CUDA_HOME": "/opt/cuda"}
    assert found.conflicts == {"NCCL_PROTO": ["LL", "Simple"]}


def test_contradictory_lines_of_a_rocm_build_are_all_kept() -> None:
    found = lists.read(
        "ROCM Version                 : 7.2.26015\nvLLM Version                 : 0.1.dev0+g8514f05\n"
        "vLLM Build Flags:\n  CUDA Archs: Not Set; ROCm: Disabled\n[pip3] torch==2.10.0+git8514f05\n"
    )
    assert found.fields["rocm version"] == "7.2.26015"
    assert found.fields["cuda archs"] == "Not Set; ROCm: Disabled"
    assert found.packages["torch"] == "2.10.0+git8514f05"


CHECK = """
/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found
Python: 3.9.19 (main, May  6 2024, 19:43:03) [GCC 11.2.0]
CUDA available: True
GPU 0,1,2,3: NVIDIA H100 80GB HBM3
NVCC: Not Available
CUDA Driver Version: 535.00.01
535.00.01
535.00.01
535.00.01
PyTorch: 2.3.0+cu121
sglang: 0.2.9
vllm: Module Not Found
zmq: 26.0.3
multipart: 0.0.9
PIL: 10.4.0
ulimit soft: 1048576
"""


def test_check_env_s_import_names_are_the_distributions_and_what_is_missing_is_no_value() -> None:
    snapshot = report(CHECK)
    names = {name: one.version for name, one in snapshot.packages.distributions.items()}
    assert names == {
        "sglang": "0.2.9", "pyzmq": "26.0.3", "python-multipart": "0.0.9", "pillow": "10.4.0", "torch": "2.3.0+cu121",
    }  # fmt: skip
    assert set(snapshot.gpu.gpus) == {"GPU0", "GPU1", "GPU2", "GPU3"}
    assert snapshot.gpu.driver == "535.00.01"
    assert snapshot.limits.limits == {"open files": "1048576"}
    mixed = report(CHECK.replace("535.00.01\nPyTorch", "550.00.01\nPyTorch"))
    assert mixed.gpu.driver == Unread(unread="the report says 535.00.01 and 550.00.01")


@pytest.mark.parametrize("text", ["Your output of `python collect_env.py` here", "ci env", "N/A", "", "```\n```"])
def test_an_untouched_template_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"ticket\.txt holds no report that is understood"):
        report(text)


def test_other_systems_processor_blocks_are_read_as_far_as_they_go() -> None:
    found = lists.read(
        "OS: Could not collect\nCPU:\nArchitecture=9\nCurrentClockSpeed=3701\nL2CacheSpeed=\nName=AMD X\n"
    )
    assert found.variables["L2CacheSpeed"] == ""
    assert found.fields["os"] is None
    assert report("OS: Could not collect\nName=Apple M2 Pro\ntorch==2.8.0\n").host.cpu.model == "Apple M2 Pro"


@given(st.text())
def test_no_text_breaks_the_lists(text: str) -> None:
    found = lists.read(text)
    assert all(name not in found.packages for name in found.conflicts)


# ---------------------------------------------------------------------------------------------------------------------
# comparing


def live() -> Snapshot:
    dists = {
        name: Distribution(version=version, location="/venv", record="r", requires=["numpy"], contents="c")
        for name, version in (("torch", "2.8.0"), ("flashinfer-python", "0.2.14.post1"), ("numpy", "2.0"))
    }
    variables = {"NCCL_SOCKET_IFNAME": "ib0", "CUDA_HOME": "/opt/other", "HOME": "/root"}
    launcher = {
        "role": "launcher",
        "pid": 1,
        "parent": 0,
        "title": "",
        "argv": ["python"],
        "executable": "/venv/bin/python",
    }
    process = Process.model_validate(
        {**launcher, "cwd": "/", "started": 0.0, "at_exec": variables, "variables": variables}
    )
    interpreter = Interpreter(
        executable="/venv/bin/python", version="3.12.11", prefix="/venv", base_prefix="/usr", path=["/venv/lib"]
    )

    def h100(index: int) -> Gpu:
        return Gpu(index=index, name="NVIDIA H100 80GB HBM3", vbios="1")

    return Snapshot(
        tool="0", taken_at=NOW, target="x",
        packages=Packages(status="ok", distributions=dists, interpreter=interpreter),
        server=Server(status="ok", processes={"launcher": process}),
        gpu=Gpus(status="ok", driver="580.65", gpus={"0000:17:00.0": h100(0), "0000:18:00.0": h100(1)}),
    )  # fmt: skip


def test_what_a_report_does_not_name_is_unknown_and_what_it_names_is_compared() -> None:
    for comparison in (compare(report(VLLM), live()), compare(live(), report(VLLM))):
        assert {one.title for one in comparison.differences} == {"torch", "CUDA_HOME", "driver"}
        untold = {
            one.section for one in comparison.not_comparable if one.title == "all that a pasted report does not name"
        }
        assert untold >= {"packages", "server"}


def test_no_launch_is_made_of_a_report() -> None:
    with pytest.raises(UsageError, match="made of a pasted report"):
        find(report(VLLM), live(), Evidence())


def test_the_command_makes_a_snapshot_without_secrets(tmp_path: Path) -> None:
    made = tmp_path / "old.json"
    text = f"{VLLM}HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\n"
    command = [sys.executable, "-m", "fingerprint.cli", "import", "-", "-o", str(made)]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "hf_abcdef" not in made.read_text()
    variables = load(made).server.processes["launcher"].at_exec
    assert isinstance(variables, dict)
    assert variables["HF_TOKEN"].startswith("<secret:")
    refused = subprocess.run(command, input="N/A", capture_output=True, text=True)
    assert refused.returncode == 2
    assert "holds no report" in refused.stderr
