"""Snapshots: what was read from one serving host at one time, as pydantic models.

Nothing here reads a host or compares anything: it only says what a snapshot is, and loads and saves it.
"""

from snapshots.base import Key, Leaf, Part, Read, Section, State, Unread, identity_digest, leaves
from snapshots.caches import Cache, Caches, Compiler
from snapshots.gpu import Gpu, GpuLink, GpuProcess, Gpus, KernelModule, NvLinks
from snapshots.host import Cpu, Host
from snapshots.limits import CgroupLevel, Limits
from snapshots.log import Log, Running
from snapshots.models import Model, ModelFile, Models
from snapshots.nccl import NamedFile, Nccl, NcclFile
from snapshots.packages import CondaPackage, Distribution, Interpreter, Packages
from snapshots.server import Choice, Declared, Library, Process, Server, SettingsFile
from snapshots.snapshot import SCHEMA, Batch, Measured, NotASnapshotError, Snapshot, load, parse, save
from snapshots.startup import Startup, StartupFile
from snapshots.topology import InfinibandPort, NetworkInterface, NumaNode, PciDevice, Topology
from snapshots.tree import LocalFile, Tree, Trees

__all__ = [
    "SCHEMA",
    "Batch",
    "Cache",
    "Caches",
    "CgroupLevel",
    "Choice",
    "Compiler",
    "CondaPackage",
    "Cpu",
    "Declared",
    "Distribution",
    "Gpu",
    "GpuLink",
    "GpuProcess",
    "Gpus",
    "Host",
    "InfinibandPort",
    "Interpreter",
    "KernelModule",
    "Key",
    "Leaf",
    "Library",
    "Limits",
    "LocalFile",
    "Log",
    "Measured",
    "Model",
    "ModelFile",
    "Models",
    "NamedFile",
    "Nccl",
    "NcclFile",
    "NetworkInterface",
    "NotASnapshotError",
    "NumaNode",
    "NvLinks",
    "Packages",
    "Part",
    "PciDevice",
    "Process",
    "Read",
    "Running",
    "Section",
    "Server",
    "SettingsFile",
    "Snapshot",
    "Startup",
    "StartupFile",
    "State",
    "Topology",
    "Tree",
    "Trees",
    "Unread",
    "identity_digest",
    "leaves",
    "load",
    "parse",
    "save",
]
