"""What every model of a snapshot is made of, and the one walk that all comparisons use.

A snapshot is a tree of `Part`s whose collections are dictionaries by natural key (package name, variable, rank, path,
bus id). So one walk gives its *leaves*, each under a key that means the same in every snapshot, and a comparison is a
join on those keys. Three things are typed rather than guessed:

* `State[T]` marks a reading that moves on its own (temperature, pid, free memory): shown, never part of the identity.
* `IdentityOf(part)` stands with a value of which only a part is identity: a command line, but not the port in it.
* `Unread` stands where a value could not be read, with the reason. `None` means that the thing is really not there.

Every command that reads a snapshot waits for these classes. So annotations of models are evaluated as the compiled code
that they are, not postponed to text that pydantic compiles again, and what validates a model is built once, as a part
of what validates a snapshot, unless somebody makes such a model by itself.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")

Key: TypeAlias = tuple[str, ...]


class Part(BaseModel):
    """Base of every model here: immutable, and unknown fields are an error rather than lost."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class StateMark:
    """Annotation behind `State[T]`."""


State = Annotated[T, StateMark()]


class IdentityOf:
    """Annotation of a field: which part of its value is identity. What it leaves out is state."""

    def __init__(self, part: Callable[[Any], object]) -> None:
        self.part = part


class Unread(Part):
    """A value that could not be read; `unread` is the reason, in words."""

    unread: str


Leaf: TypeAlias = str | int | float | bool | tuple["Leaf", ...] | Unread


def _unread_first(value: object) -> object:
    """Recognise an unread mark before any dictionary type can swallow it."""
    if isinstance(value, dict) and value.keys() == {"unread"} and isinstance(value["unread"], str):
        return Unread(unread=value["unread"])
    return value


Read = Annotated[Union[T, Unread], BeforeValidator(_unread_first)]  # noqa: UP007 - a generic alias needs Union


Status: TypeAlias = Literal["ok", "partial", "failed", "absent"]


class Section(Part):
    """One probe's answer. `absent` means that the host has no such thing, or that nobody asked; `reason` says which."""

    status: State[Status] = "absent"
    reason: State[str | None] = None
    seconds: State[float] = 0.0


def _whole(value: object) -> object:
    return value


@cache
def _marked(model: type[BaseModel]) -> dict[str, Callable[[Any], object] | None]:
    """The fields that are not identity as they are, to the part that is; None for state."""
    found: dict[str, Callable[[Any], object] | None] = {}
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, StateMark):
                found[name] = None
            elif isinstance(mark, IdentityOf):
                found[name] = mark.part
    return found


def leaves(value: object, *, state: bool = False, defaults: bool = True, key: Key = ()) -> Iterator[tuple[Key, Leaf]]:
    """Yield every leaf below `value` with its natural key.

    Args:
        value: a model, a dictionary of them, a list or a plain value.
        state: also yield the readings marked `State`, and values whole of which only a part is identity.
        defaults: also yield what a model has by default, as if it had been read.
        key: the key of `value` itself.

    Nothing is yielded for `None`: an absent value and a missing key are the same thing. Lists are leaves, in order.
    """
    if value is None:
        return
    if isinstance(value, Unread):
        yield key, value
    elif isinstance(value, BaseModel):
        model = type(value)
        marked = {} if state else _marked(model)
        fields = model.__pydantic_fields__
        for name, child in value.__dict__.items():
            part = marked.get(name, _whole)
            if part is None or child is None or not (defaults or child != fields[name].default):
                continue
            counts = child if isinstance(child, Unread) else part(child)
            yield from leaves(counts, state=state, defaults=defaults, key=(*key, name))
    elif isinstance(value, Mapping):
        for name, child in value.items():
            if isinstance(child, str):  # the common case, without a generator for each
                yield (*key, str(name)), child
            else:
                yield from leaves(child, state=state, defaults=defaults, key=(*key, str(name)))
    elif isinstance(value, (list, tuple)):
        yield key, _frozen(value)
    elif isinstance(value, (str, int, float, bool)):
        yield key, value
    elif isinstance(value, datetime):
        yield key, value.isoformat()
    else:
        raise TypeError(f"{type(value).__name__} is not a snapshot value")


def _frozen(value: object) -> Leaf:
    if isinstance(value, Part) and not isinstance(value, Unread):
        value = {name: child for name, child in value.__dict__.items() if child is not None}
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((str(name), _frozen(value[name])) for name in sorted(value, key=str))
    if value is None:
        return ""
    if isinstance(value, (str, int, float, bool, Unread)):
        return value
    if isinstance(value, BaseModel):
        return tuple((name, _frozen(child)) for name, child in sorted(value.__dict__.items()) if child is not None)
    raise TypeError(f"{type(value).__name__} is not a snapshot value")


_quoted = json.encoder.encode_basestring_ascii
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _canonical(leaf: Leaf) -> object:
    if isinstance(leaf, Unread):
        return {"unread": True}  # the wording of a reason is no part of an environment's identity
    if isinstance(leaf, tuple):
        return [_canonical(item) for item in leaf]
    return leaf


def identity_digest(value: object) -> str:
    """SHA-256, in hexadecimal, of the canonical identity part: equal for equal environments on any machine.

    Defaults are left out, so that a file keeps its id when later versions know more fields.
    """
    rows = []
    for key, leaf in sorted(leaves(value, defaults=False), key=itemgetter(0)):
        # One row is the JSON of [key, leaf]. Most leaves are strings; an encoder for each would be most of the cost.
        text = _quoted(leaf) if isinstance(leaf, str) else _encode(_canonical(leaf))
        rows.append(f"[[{','.join(map(_quoted, key))}],{text}]\n")
    return hashlib.sha256("".join(rows).encode()).hexdigest()


__all__ = [
    "Field",
    "IdentityOf",
    "Key",
    "Leaf",
    "Part",
    "Read",
    "Section",
    "State",
    "StateMark",
    "Status",
    "Unread",
    "identity_digest",
    "leaves",
]
