"""Ctrl-C while a snapshot reads the watcher's reports: none of them is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import pytest

from shadowtree import Shadow
from shadowtree.base.paths import RelPath
from shadowtree.watching.watcher import Rescan
from shadowtree.watching.watchfiles_watcher import WatchfilesWatcher
from tests.support.trees import make_tree
from tests.support.watching import BASE, SETTINGS, Watched, take_cold

Trace: TypeAlias = Callable[[FrameType, str, Any], Any]  # Any: as Python defines it
MODULES = ("inotify.py", "watch.py", "watcher.py")
STEP = 7
"""Test every n-th line; testing more would take long."""


class InterruptedAt:
    """Raises KeyboardInterrupt before the nth line of the watching modules runs."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.has_raised = False

    def __enter__(self) -> InterruptedAt:
        self._before = sys.gettrace()
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *exc: object) -> None:
        # Restored, so that coverage measures the rest too.
        sys.settrace(self._before)

    def _enter_function(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        is_meant = frame.f_code.co_filename.endswith(MODULES) and "shadowtree" in frame.f_code.co_filename
        return self._pass_line if is_meant and frame.f_code.co_name != "__del__" else None

    def _pass_line(self, frame: FrameType, event: str, argument: Any) -> Trace:
        # Signals are not raised there: at the end of its block a `with` is executed again.
        line = getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith(("with ", "try:")):
            self._left -= 1
            if self._left == 0:
                self.has_raised = True
                raise KeyboardInterrupt
        return self._pass_line


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_ctrl_c_at_any_line_loses_nothing_that_was_told(tmp_path: Path) -> None:
    top = tmp_path / "top"
    make_tree(top, BASE)
    with Shadow(top, store=tmp_path / "store", watch=True, settings=SETTINGS) as shadow:
        shadow.take_snapshot()
        line, is_over = 1, False
        while not is_over:
            (top / "src/deep/er/f").write_text(f"in place {line}")
            (top / "c" / f"came {line}").mkdir()
            (top / "c" / f"came {line}" / "file").write_text("new")
            with InterruptedAt(line) as interrupt:
                try:
                    shadow.take_snapshot()
                except KeyboardInterrupt:
                    pass
            is_over, line = not interrupt.has_raised, line + STEP

            warm = shadow.take_snapshot()
            cold = take_cold(top, tmp_path / "store")
            assert (warm.tree, warm.files) == (cold.tree, cold.files), line


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_ctrl_c_while_the_queue_is_drained_is_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    make_tree(top, BASE)
    watched = Watched(top, tmp_path)
    watched.check()
    (top / "a.txt").write_text("two\n")

    with monkeypatch.context() as patch:
        patch.setattr("shadowtree.watching.inotify_watcher.InotifyWatcher._note", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            watched.shadow.drain()

    assert watched.shadow.drain()
    watched.check()
    watched.shadow.close()


def test_ctrl_c_between_two_notices_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    make_tree(top, {"a": "a"})
    watcher = WatchfilesWatcher(str(top), str(tmp_path / "cookies"))
    fd = os.open(top, os.O_RDONLY)
    watcher.add_watch(RelPath(b""), fd)
    os.close(fd)
    (top / "a").write_text("b")

    with monkeypatch.context() as patch:
        patch.setattr(WatchfilesWatcher, "_take_in", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            watcher.drain()

    assert isinstance(watcher.dirty(), Rescan)
    watcher.close()


def _interrupt(*arguments: object) -> bool:
    raise KeyboardInterrupt
