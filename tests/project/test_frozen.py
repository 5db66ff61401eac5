"""Frozen classes: what a dataclass promises, without importing dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import subprocess
import sys

import pytest

from shadowtree.base.frozen import field, frozen, replace


@frozen
class Point:
    """A place."""

    x: int
    y: int = 0

    @property
    def sum(self) -> int:
        """Both together."""
        return self.x + self.y


@frozen
class Basket:
    """Something with a default that must not be shared."""

    name: str = "empty"
    fruits: list[str] = field(default_factory=list)


@frozen
class Loud:
    """Something that prints itself in its own way."""

    word: str

    def __repr__(self) -> str:
        return self.word.upper()


def test_fields_are_given_by_place_by_name_or_by_default() -> None:
    assert (Point(1, 2).x, Point(1, 2).y) == (1, 2)
    assert (Point(y=2, x=1).x, Point(y=2, x=1).y) == (1, 2)
    assert (Point(1).y, Point(1).sum) == (0, 1)


def test_a_factory_makes_a_default_for_each_object() -> None:
    first, second = Basket(), Basket()
    first.fruits.append("plum")

    assert second.fruits == []


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((), {"y": 1}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})],
    ids=["none", "too few", "too many", "one twice", "an unknown one"],
)
def test_wrong_arguments_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_nothing_can_be_changed_added_or_deleted() -> None:
    point = Point(1)

    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(point, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(point, name)
    assert not hasattr(point, "__dict__")
    assert point.x == 1


def test_objects_are_equal_by_class_and_fields() -> None:
    @frozen
    class Other:
        x: int
        y: int = 0

    unlike: list[object] = [Point(2, 1), Other(1, 2), (1, 2)]

    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) not in unlike


def test_equal_objects_have_equal_hashes() -> None:
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    with pytest.raises(TypeError):
        hash(Basket())


def test_an_object_prints_its_fields_unless_its_class_knows_better() -> None:
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"
    assert repr(Loud("hey")) == "HEY"


def test_the_class_keeps_its_name_module_and_docstring() -> None:
    assert (Point.__name__, Point.__module__, Point.__doc__) == ("Point", __name__, "A place.")


def test_objects_survive_pickling_and_copying() -> None:
    basket = Basket("full", ["plum"])

    assert pickle.loads(pickle.dumps(basket)) == basket
    assert copy.copy(basket) == basket
    deep = copy.deepcopy(basket)
    assert deep == basket
    assert deep.fruits is not basket.fruits


def test_objects_can_be_matched_by_place() -> None:
    match Point(1, 2):
        case Point(x, y):
            found = (x, y)

    assert found == (1, 2)


def test_a_copy_can_differ_in_some_fields() -> None:
    basket = Basket("full", ["plum"])
    other = replace(basket, name="fuller")

    assert other == Basket("fuller", ["plum"])
    assert (basket.name, other.fruits is basket.fruits) == ("full", True)
    assert replace(Point(1, 2)) == Point(1, 2)
    with pytest.raises(TypeError):
        replace(Point(1), z=1)


def test_dataclasses_takes_it_for_one_of_its_own() -> None:
    candidates: list[object] = [Point, Point(1), Basket()]

    assert all(dataclasses.is_dataclass(candidate) for candidate in candidates)
    assert [one.name for one in dataclasses.fields(Point)] == ["x", "y"]
    assert dataclasses.fields(Point)[0].default is dataclasses.MISSING
    assert dataclasses.fields(Point)[1].default == 0
    assert dataclasses.fields(Basket)[1].default_factory is not dataclasses.MISSING
    assert dataclasses.asdict(Basket("full", ["plum"])) == {"name": "full", "fruits": ["plum"]}
    assert dataclasses.astuple(Point(1, 2)) == (1, 2)
    assert dataclasses.replace(Point(1, 2), y=3) == Point(1, 3)


def test_dataclasses_is_imported_by_nobody_who_does_not_ask_for_it() -> None:
    """This is what the module is for. What measures coverage does import it, so nothing is measured here."""
    code = "import sys, shadowtree.results.messages; print('dataclasses' in sys.modules)"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, check=True, text=True)

    assert done.stdout == "False\n"
