"""AMD's GPUs from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import amd, gpu
from snapshots import Gpu, Gpus, identity_digest


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def board(address: str, **other: str) -> dict[str, str]:
    """What amdgpu shows of one board, in the units of the kernel's documentation."""
    place = f"bus/pci/devices/{address}"
    files = {
        "vendor": "0x1002", "device": "0x74a1", "mem_info_vram_total": "206141652992",
        "mem_info_vram_used": "298844160",
        "vbios_version": "113-M3000100-102", "unique_id": "a1b2c3d4e5f60718", "gpu_busy_percent": "0",
        "power_dpm_force_performance_level": "auto", "current_compute_partition": "SPX",
        "current_memory_partition": "NPS1", "current_link_width": "16", "max_link_width": "16",
        "pp_dpm_sclk": "S: 132Mhz *\n0: 500Mhz\n1: 2100Mhz", "pp_dpm_mclk": "0: 900Mhz *\n1: 1300Mhz",
        "hwmon/hwmon3/power1_cap": "750000000", "hwmon/hwmon3/power1_cap_default": "750000000",
        "hwmon/hwmon3/power1_cap_min": "0", "hwmon/hwmon3/power1_cap_max": "750000000",
        "hwmon/hwmon3/power1_average": "141000000", "hwmon/hwmon3/temp1_input": "38000",
    }  # fmt: skip
    return {f"{place}/{name}": text for name, text in {**files, **other}.items()}


def read(root: Path) -> Gpus:
    return Gpus.model_validate(amd.collect(str(root)))


def test_a_board_is_told_with_memory_power_clocks_and_partitions(tmp_path: Path) -> None:
    lay(
        tmp_path, {**board("0000:05:00.0"), "module/amdgpu/version": "6.10.5", "module/amdgpu/parameters/noretry": "-1"}
    )
    section = read(tmp_path)
    one = section.gpus["0000:05:00.0"]
    assert isinstance(one, Gpu)
    assert (section.driver, section.parameters) == ("amdgpu 6.10.5", {"noretry": "-1"})
    assert (section.status, section.reason) == ("partial", amd.REASON)
    assert (one.pci_id, one.memory_bytes, one.vbios) == ("1002:74a1", 206141652992, "113-M3000100-102")
    assert (one.power_limit_w, one.power_default_w, one.power_range_w) == (750, 750, [0, 750])
    assert (one.power_now_w, one.temperature_c) == (141, 38)
    assert (one.clocks_max_mhz, one.clocks_now_mhz) == (
        {"graphics": 2100, "memory": 1300},
        {"graphics": 132, "memory": 900},
    )
    assert one.modes == {"performance level": "auto", "compute partition": "SPX", "memory partition": "NPS1"}


def test_what_moves_by_itself_is_state_and_what_is_set_is_identity(tmp_path: Path) -> None:
    lay(tmp_path, board("0000:05:00.0"))
    before = read(tmp_path)
    lay(tmp_path, board("0000:05:00.0", gpu_busy_percent="97", pp_dpm_sclk="0: 500Mhz\n1: 2100Mhz *"))
    assert identity_digest(before) == identity_digest(read(tmp_path))
    lay(tmp_path, board("0000:05:00.0", power_dpm_force_performance_level="low"))
    assert identity_digest(before) != identity_digest(read(tmp_path))


def test_what_a_kernel_does_not_show_is_none(tmp_path: Path) -> None:
    place = "bus/pci/devices/0000:05:00.0"
    lay(tmp_path, {f"{place}/vendor": "0x1002", f"{place}/device": "0x73bf", f"{place}/mem_info_vram_total": "oops"})
    one = read(tmp_path).gpus["0000:05:00.0"]
    assert isinstance(one, Gpu)
    assert (one.memory_bytes, one.power_limit_w, one.vbios, one.clocks_max_mhz) == (None, None, None, {})


def test_other_vendors_and_other_devices_of_amd_are_no_gpus(tmp_path: Path) -> None:
    lay(tmp_path, {"bus/pci/devices/0000:00:01.0/vendor": "0x1002", "bus/pci/devices/0000:05:00.0/vendor": "0x10de"})
    assert amd.collect(str(tmp_path)) is None


def test_a_host_without_nvidia_has_its_amd_gpus_in_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, board("0000:05:00.0"))
    monkeypatch.setattr(gpu, "amd_gpus", lambda: amd.collect(str(tmp_path)))
    monkeypatch.setattr(gpu, "_kernel_module", lambda: None)
    monkeypatch.setattr("os.path.exists", lambda _path: False)
    section = Gpus.model_validate(gpu.read({"ask": {}}))
    assert set(section.gpus) == {"0000:05:00.0"}
