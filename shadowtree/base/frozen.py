"""Frozen dataclasses that cost next to nothing at start-up.

Importing `dataclasses` and generating a dozen classes takes longer than Python needs to start, and a hook
that runs before every message would pay for it each time (docs/decisions/0003-start-up.md). `frozen` makes
equivalent classes: slotted, immutable, compared and printed by their fields. The functions of `dataclasses`
(`is_dataclass`, `fields`, `asdict`, `replace`) accept them, and the module is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    Class = TypeVar("Class")
else:

    def dataclass_transform(**_: object) -> Callable[[object], object]:
        """Do nothing at run time; type checkers see the real one."""
        return lambda decorator: decorator


class _Factory:
    """A default value that is made anew for each object."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:  # Any: stands for a value of the field's own type
    """Return a field's default that is made anew for each object by `default_factory`."""
    return _Factory(default_factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(plain: type[Class]) -> type[Class]:
    """Turn a class with annotated fields into a frozen, slotted dataclass."""
    names = tuple(plain.__annotations__)
    space = {key: value for key, value in vars(plain).items() if key not in ("__dict__", "__weakref__")}
    space["__frozen_defaults__"] = {name: space.pop(name) for name in names if name in space}
    space["__slots__"] = space["__match_args__"] = names
    # Not a function, so instances do not bind it. It returns the value of one field, or a tuple of several.
    space["__frozen_key__"] = attrgetter(*names) if names else type
    bases = [base for base in plain.__bases__ if base is not object]
    return type(plain.__name__, (*bases, _Frozen), space)


def replace(value: Class, **changes: object) -> Class:
    """Make a copy of a frozen object in which some fields differ."""
    kind = type(value)
    fields = {name: getattr(value, name) for name in kind.__match_args__}  # type: ignore[attr-defined]  # all have it
    return kind(**{**fields, **changes})


class _Fields:
    """The attribute that `dataclasses` looks for in a class, made when it is accessed."""

    def __get__(self, instance: object, owner: type[_Frozen]) -> dict[str, Any]:  # Any: fields of dataclasses
        import dataclasses

        fields: list[tuple[str, Any, Any]] = []  # Any: annotations and defaults of any type
        for name, kind in owner.__annotations__.items():
            default = owner.__frozen_defaults__.get(name, dataclasses.MISSING)
            if isinstance(default, _Factory):
                fields.append((name, kind, dataclasses.field(default_factory=default.make)))
            else:
                fields.append((name, kind, dataclasses.field(default=default)))
        made: Any = dataclasses.make_dataclass(owner.__name__, fields)  # Any: a class made just now
        return dict(made.__dataclass_fields__)


class _Frozen:
    """What all frozen classes have in common."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    __frozen_defaults__: dict[str, object]
    __frozen_key__: Callable[[object], object]
    """Returns the value by which objects are compared."""
    __dataclass_fields__ = _Fields()

    def __init__(self, *values: object, **named: object) -> None:
        names = self.__match_args__
        if named or len(values) != len(names):
            values = _complete(self, values, named)
        # Nearly twice as fast as a loop of calls; one message makes a hundred of these objects.
        for _ in map(_set_field, repeat(self), names, values):
            pass

    def __setattr__(self, name: str, value: object) -> None:
        _refuse_change(self, name)

    def __delattr__(self, name: str) -> None:
        _refuse_change(self, name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        key = self.__frozen_key__
        return key(self) == key(other)

    def __hash__(self) -> int:
        return hash(self.__frozen_key__(self))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({inner})"

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


_set_field = object.__setattr__


def _complete(made: _Frozen, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
    """Append named values and defaults to the positional values."""
    names, defaults, kind = made.__match_args__, made.__frozen_defaults__, type(made).__name__
    left = names[len(values) :]
    if len(values) > len(names) or not named.keys() <= set(left):
        raise TypeError(f"{kind} takes each of {', '.join(names)} once")
    found = list(values)
    for name in left:
        if name not in named and name not in defaults:
            raise TypeError(f"{kind} needs {name}")
        value = named[name] if name in named else defaults[name]
        found.append(value.make() if isinstance(value, _Factory) else value)
    return tuple(found)


def _refuse_change(value: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(value).__name__}.{name} cannot be changed")
