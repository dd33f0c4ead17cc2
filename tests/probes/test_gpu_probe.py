"""The GPUs, told by a fake of NVML that is compiled here and answers as a host with two H200 did."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fingerprint.capture import capture
from fingerprint.host import HostProgram, archive
from fingerprint.targets import parse_target
from probes import gpu
from probes.capture import _has_unread
from snapshots import Gpu, Gpus, Unread, identity_digest

Context = Callable[..., dict[str, Any]]


@pytest.fixture
def read(fake: str, context: Context, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gpus]:
    def read(mode: str = "", **serving: Any) -> Gpus:  # noqa: ANN401
        monkeypatch.setenv("FAKE_NVML", mode)
        request = context(nvml=fake)
        if serving:
            request["serving"] = serving
        return Gpus.model_validate(gpu.read(request))

    return read


def test_two_h200_are_told_as_they_are(read: Callable[..., Gpus]) -> None:
    section = read()
    assert (section.driver, section.nvml, section.cuda) == ("580.159.04", "13.580.159.04", "13.0")
    assert section.confidential is True
    assert set(section.gpus) == {"0000:00:06.0", "0000:00:07.0"}
    one = section.gpus["0000:00:06.0"]
    assert isinstance(one, Gpu)
    assert (one.name, one.pci_id, one.vbios, one.inforom) == (
        "NVIDIA H200", "10de:2335", "96.00.A5.00.1A", "G520.0282.02.02",
    )  # fmt: skip
    assert (one.power_limit_w, one.power_default_w, one.power_range_w) == (700.0, 700.0, [200.0, 700.0])
    assert one.clocks_max_mhz == {"graphics": 1980, "sm": 1980, "memory": 3201, "video": 1980}
    assert one.clocks_application_mhz == {}  # the board does not have them: no reason, no zero
    assert one.clock_ranges == {"graphics": "345-1980", "memory": "3201-3201"}
    assert one.event_reasons == ["gpu_idle"]
    assert (one.ecc, one.mig, one.persistence, one.compute_mode) == (1, 0, True, "default")
    assert not isinstance(one.nvlinks, Unread)
    assert one.nvlinks is not None
    assert (one.nvlinks.active, one.nvlinks.inactive) == (18, 0)
    assert one.processes == []
    assert one.fabric == ["completed"]
    link = section.links["0000:00:06.0 0000:00:07.0"]
    assert (link.path, link.p2p) == ("PHB", {"read": "ok", "write": "ok", "nvlink": "ok", "atomics": "ok"})
    assert not _has_unread(section.model_dump())


def test_what_moves_by_itself_is_no_part_of_the_identity(read: Callable[..., Gpus]) -> None:
    section = read()
    one = section.gpus["0000:00:06.0"]
    assert isinstance(one, Gpu)
    warmer = one.model_copy(
        update={"temperature_c": 80, "power_now_w": 690.0, "clocks_now_mhz": {"sm": 1980}, "pcie_generation_now": 1}
    )
    slower = one.model_copy(update={"power_limit_w": 400.0})
    digests = [identity_digest(section.model_copy(update={"gpus": {"x": each}})) for each in (one, warmer, slower)]
    assert digests[0] == digests[1] != digests[2]


def test_a_gpu_that_has_not_joined_the_fabric_is_told_with_what_is_wrong(read: Callable[..., Gpus]) -> None:
    boards = read("apart").gpus
    told = [board.fabric for board in boards.values() if isinstance(board, Gpu)]
    assert told == [["completed"], ["in progress", "unhealthy route"]]
    assert [board.fabric for board in read("old").gpus.values() if isinstance(board, Gpu)] == [None, None]


def test_a_board_without_any_reading_is_unread_and_no_healthy_one_at_zero() -> None:
    class Silent(gpu.Nvml):
        def __init__(self) -> None:
            pass

        def ask(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401
            if name == "nvmlDeviceGetCount":
                return 1
            if name == "nvmlDeviceGetPciInfo":
                return SimpleNamespace(busId="00000000:0B:00.0", pciDeviceId=0x233510DE)
            if name in {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"}:
                return "NVIDIA H200"
            raise gpu.NvmlError("Not Supported")

        def structure(self, name: str) -> Any:  # noqa: ANN401
            raise gpu.NvmlError(name)

    assert gpu.collect(Silent())["gpus"] == {"0000:0b:00.0": {"unread": "no reading of it is to be had"}}


def test_a_lost_gpu_is_a_reason_and_the_other_one_is_there(read: Callable[..., Gpus]) -> None:
    section = read("lost")
    assert section.gpus["index 1"] == Unread(unread="GPU is lost")
    assert isinstance(section.gpus["0000:00:06.0"], Gpu)


def test_a_library_that_does_not_match_the_driver_is_said(read: Callable[..., Gpus]) -> None:
    section = read("mismatch")
    assert (section.status, section.reason) == ("failed", "NVML: driver/library version mismatch")


def test_a_driver_that_never_returns_costs_its_deadline(
    read: Callable[..., Gpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "DEADLINE_S", 0.5)
    section = read("hang")
    assert section.status == "failed"
    assert section.reason == "NVML did not finish within 0.5 s and was ended"


def test_a_driver_that_crashes_takes_nothing_with_it(read: Callable[..., Gpus]) -> None:
    assert read("crash").reason == "NVML: signal 6"


def test_an_older_driver_answers_by_its_older_names(read: Callable[..., Gpus]) -> None:
    section = read("old")
    assert section.confidential is None
    one = section.gpus["0000:00:06.0"]
    assert isinstance(one, Gpu)
    assert one.event_reasons == ["sw_power_cap", "hw_power_brake_slowdown"]
    assert one.power_default_w == Unread(unread="Unknown Error")


def test_processes_of_others_are_foreign(read: Callable[..., Gpus]) -> None:
    def processes(section: Gpus) -> Any:  # noqa: ANN401
        one = section.gpus["0000:00:06.0"]
        assert isinstance(one, Gpu)
        return one.processes

    (other,) = processes(read("foreign", processes={"rank 0": os.getpid() + 1}))
    assert (other.pid, other.foreign, other.memory_bytes) == (os.getpid(), True, 1 << 30)
    (own,) = processes(read("foreign", processes={"rank 0": os.getpid()}))
    assert own.foreign is False


def test_a_process_on_a_gpu_that_the_server_does_not_use_is_no_stranger_to_it(read: Callable[..., Gpus]) -> None:
    section = read("neighbour", processes={"rank 0": os.getpid()})
    for address, pid in {"0000:00:06.0": os.getpid(), "0000:00:07.0": os.getpid() + 1}.items():
        one = section.gpus[address]
        assert isinstance(one, Gpu)
        assert isinstance(one.processes, list)
        assert [(process.pid, process.foreign) for process in one.processes] == [(pid, False)]


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A fake nvidia-smi on the PATH."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_library_that_is_not_there_is_a_reason(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    section = gpu.read(context(nvml="/nowhere/libnvidia-ml.so.1"))
    assert section["status"] == "failed"
    assert section["reason"].startswith("NVML cannot be loaded: /nowhere/libnvidia-ml.so.1")
    assert section["reason"].endswith("nvidia-smi: exit status 6")


def test_the_tool_stands_in_where_the_library_cannot_be_loaded(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (
        "00000000:00:06.0, NVIDIA H200, GPU-1, 580.159.04, 96.00.A5.00.1A, 143771, 700.00, [Unknown Error], 700.00,"
        " 1980, 3201, Enabled, Exclusive_Process, 16, 16, 35\n"
        "Unable to determine the device handle for GPU 0000:00:07.0: Unknown Error\n"
        "00000000:00:08.0, NVIDIA H200, GPU-3, 580.159.04, [N/A], 143771, 600.00, 700.00, 600.00,"
        " 1980, 3201, Disabled, Default, 8, 16, 35\n"
    )
    smi(tmp_path, monkeypatch, f"cat <<'END'\n{rows}END")
    section = Gpus.model_validate(gpu.read(context(nvml="/nowhere/libnvidia-ml.so.1")))
    assert section.driver == "580.159.04"
    first, third = section.gpus["0000:00:06.0"], section.gpus["0000:00:08.0"]
    assert isinstance(first, Gpu)
    assert isinstance(third, Gpu)
    assert (first.power_limit_w, first.power_default_w) == (700.0, Unread(unread="nvidia-smi: Unknown Error"))
    assert (first.clocks_max_mhz, first.persistence) == ({"sm": 1980, "memory": 3201}, True)
    assert first.compute_mode == "exclusive process"
    assert (third.power_limit_w, third.vbios, third.pcie_width) == (600.0, None, 8)
    lost = section.gpus["index 1"]  # the third GPU is not renumbered for it
    assert isinstance(lost, Unread)
    assert "Unknown Error" in lost.unread


def test_a_tool_that_hangs_costs_its_deadline(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, "exec sleep 600")
    monkeypatch.setattr(gpu, "DEADLINE_S", 0.5)
    monkeypatch.setattr(gpu, "_ask_nvml", lambda _libraries: {"unread": "NVML cannot be loaded: not here"})
    reason = gpu.read(context(nvml="/nowhere/libnvidia-ml.so.1"))["reason"]
    assert reason.endswith("did not finish within 0.5 s and was ended")


def test_the_binding_of_nvml_travels_with_the_program(fake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "")
    assert "pynvml.py" in zipfile.ZipFile(io.BytesIO(archive())).namelist()
    with HostProgram(parse_target("local")) as program:  # its interpreter sees no site-packages
        section = capture(program, {"nvml": fake, "sections": ["gpu"]}).gpu
    one = section.gpus["0000:00:06.0"]
    assert isinstance(one, Gpu)
    assert one.name == "NVIDIA H200"


def test_without_the_binding_the_tool_stands_in(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    reason = gpu.read(context(nvml="/nowhere/libnvidia-ml.so.1"))["reason"]
    assert reason.startswith("NVML cannot be loaded: No module named 'pynvml'; nvidia-smi")


def test_addresses_are_written_as_the_kernel_writes_them() -> None:
    assert gpu.bus_id("00000000:3B:00.0") == "0000:3b:00.0"
    assert gpu.bus_id("00010000:01:00.0") == "10000:01:00.0"


def test_numbers_of_nvml_are_those_of_its_python_binding() -> None:
    import pynvml

    reasons = {
        "gpu_idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "applications_clocks_setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal_slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal_slowdown": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "hw_power_brake_slowdown": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "display_clock_setting": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    }
    assert {name: 1 << place for place, name in enumerate(gpu._EVENT_REASONS)} == reasons
    assert gpu._CLOCKS == {
        "graphics": pynvml.NVML_CLOCK_GRAPHICS,
        "sm": pynvml.NVML_CLOCK_SM,
        "memory": pynvml.NVML_CLOCK_MEM,
        "video": pynvml.NVML_CLOCK_VIDEO,
    }
