"""Frozen dataclasses that cost next to nothing at start-up.

Importing `dataclasses` and letting it write a dozen classes takes longer than Python needs to start, and a
hook that runs before every message would pay for it each time (docs/decisions/0003-start-up.md). `frozen`
makes the same classes: slotted, immutable, compared and printed by their fields. Whoever asks `dataclasses`
about one (`is_dataclass`, `fields`, `asdict`, `replace`) gets the true answer, and only then is it imported.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    Class = TypeVar("Class")
else:

    def dataclass_transform(**_: object) -> Callable[[object], object]:
        """Say nothing at run time; type checkers read the real one."""
        return lambda decorator: decorator


class _Factory:
    """A default that is made anew for each object."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:  # Any: stands for a value of the field's own type
    """Give a field a default that is made anew for each object."""
    return _Factory(default_factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(plain: type[Class]) -> type[Class]:
    """Turn a class with annotated fields into a frozen, slotted dataclass."""
    names = tuple(plain.__annotations__)
    space = {key: value for key, value in vars(plain).items() if key not in ("__dict__", "__weakref__")}
    defaults = {name: space.pop(name) for name in names if name in space}
    methods = _make_methods(names, defaults)
    space.update({key: value for key, value in methods.items() if key not in space})
    space["__slots__"] = names
    space["__match_args__"] = names
    space["__dataclass_fields__"] = _Fields(defaults)
    return type(plain.__name__, plain.__bases__, space)


def replace(value: Class, **changes: object) -> Class:
    """Make a copy of a frozen object in which some fields differ."""
    kind = type(value)
    fields = {name: getattr(value, name) for name in kind.__match_args__}  # type: ignore[attr-defined]  # all have it
    return kind(**{**fields, **changes})


def _make_methods(names: tuple[str, ...], defaults: dict[str, object]) -> dict[str, object]:
    set_field = object.__setattr__

    def __init__(self: object, *values: object, **named: object) -> None:
        if named or len(values) != len(names):
            values = complete(self, values, named)
        # Nearly twice as fast as a loop that calls it: a message makes a hundred of these.
        for _ in map(set_field, repeat(self), names, values):
            pass

    def complete(self: object, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """Put named values and defaults behind those that came by their place."""
        left = names[len(values) :]
        if len(values) > len(names) or not named.keys() <= set(left):
            raise TypeError(f"{type(self).__name__} takes each of {', '.join(names)} once")
        return (*values, *[named[name] if name in named else default_of(self, name) for name in left])

    def default_of(self: object, name: str) -> object:
        if name not in defaults:
            raise TypeError(f"{type(self).__name__} needs {name}")
        default = defaults[name]
        return default.make() if isinstance(default, _Factory) else default

    def values_of(self: object) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in names])

    def __eq__(self: object, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return values_of(self) == values_of(other)

    def __hash__(self: object) -> int:
        return hash(values_of(self))

    def __repr__(self: object) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inner})"

    def __reduce__(self: object) -> tuple[type, tuple[object, ...]]:
        return type(self), values_of(self)

    return {
        "__init__": __init__,
        "__eq__": __eq__,
        "__hash__": __hash__,
        "__repr__": __repr__,
        "__reduce__": __reduce__,
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_change,
    }


def _refuse_change(self: object, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


class _Fields:
    """What `dataclasses` looks for in a class, made when it is looked for."""

    def __init__(self, defaults: dict[str, object]) -> None:
        self._defaults = defaults

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:  # Any: fields of dataclasses
        import dataclasses

        fields: list[tuple[str, Any, Any]] = []  # Any: annotations and defaults of any type
        for name, kind in owner.__annotations__.items():
            default = self._defaults.get(name, dataclasses.MISSING)
            if isinstance(default, _Factory):
                fields.append((name, kind, dataclasses.field(default_factory=default.make)))
            else:
                fields.append((name, kind, dataclasses.field(default=default)))
        made: Any = dataclasses.make_dataclass(owner.__name__, fields)  # Any: a class made just now
        return dict(made.__dataclass_fields__)
