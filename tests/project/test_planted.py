"""The faults that `tox -e planted` plants still have a place in the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

import shadowtree
from tests.planted.__main__ import PROJECT
from tests.planted.faults import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_has_one_place(fault: Fault) -> None:
    source = Path(shadowtree.__file__).parent / fault.module

    assert source.read_text("utf-8").count(fault.find) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_should_notice_a_planted_fault_is_there(fault: Fault) -> None:
    for word in fault.caught_by.split():
        file, _, name = word.partition("::")
        if name:
            assert f"def {name.partition('[')[0]}(" in (PROJECT / file).read_text("utf-8")
