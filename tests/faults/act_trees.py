"""The worktree before and after a message that makes every kind of change."""

from __future__ import annotations

from tests.support.trees import Tree, executable, file, link

TEXT = "".join(f"line {number}\n" for number in range(1, 13))

BEFORE: Tree = {
    "same.txt": "same",
    "text.txt": TEXT,
    "edited.txt": "old\n",
    "large.bin": bytes(range(256)) * 1500,
    "mode.txt": file("its mode alone", 0o644),
    "tool.sh": file("#!", 0o644),
    "both.txt": file("old", 0o600),
    "gone.txt": "gone",
    "link": link("same.txt"),
    "gone link": link("nowhere"),
    "file to dir": "a file",
    "dir to file": {"a": "a", "b": {"c": "c", "empty": {}}},
    "dir to link": {"a": "a"},
    "link to dir": link("same.txt"),
    "link to file": link("same.txt"),
    "file to link": "a file",
    "going": {"deep": {"er": {"f": "f"}}, "g": "g"},
    "empty, goes": {},
    "loses all": {"f": "f"},
    "stays": {"f": "old", "g": "same"},
}
AFTER: Tree = {
    "same.txt": "same",
    "text.txt": TEXT.replace("line 3\n", "line 3 of the message\n"),
    "edited.txt": "new\n",
    "large.bin": bytes(range(255, -1, -1)) * 2000,
    "mode.txt": file("its mode alone", 0o640),
    "tool.sh": executable("#!"),
    "both.txt": file("new", 0o444),
    "link": link("edited.txt"),
    "new link": link("new/deep"),
    "file to dir": {"a": "a", "deep": {"x": "x"}},
    "dir to file": "a file",
    "dir to link": link("stays"),
    "link to dir": {"a": "a", "b": {}},
    "link to file": "a file",
    "file to link": link("same.txt"),
    "new": {"deep": {"er": {"f": "f"}}, "g": file("g", 0o600)},
    "empty, comes": {},
    "loses all": {},
    "stays": {"f": "new", "g": "same"},
    "build.log": "no rule covers it any more",
}
"""The worktree after a message with every kind of change."""
OTHER: Tree = {
    "same.txt": "same",
    "text.txt": TEXT.replace("line 3\n", "line 3 of the other\n"),
    "edited.txt": link("same.txt"),
    "large.bin": bytes(range(256)) * 1500,
    "mode.txt": file("its mode alone", 0o600),
    "tool.sh": {"is": {"a": "directory"}},
    "gone.txt": file("not gone", 0o600),
    "link": "a file",
    "gone link": link("same.txt"),
    "file to dir": link("stays"),
    "dir to file": {"a": {}, "b": {"c": "other", "empty": {}}},
    "dir to link": "a file",
    "link to dir": link("same.txt"),
    "link to file": {},
    "file to link": executable("a file"),
    "going": {"deep": {}, "g": "g"},
    "new": link("stays"),
    "empty, goes": {"f": "f"},
    "empty, comes": "a file",
    "stays": {"f": "other", "g": "same", "h": {}},
}
"""The worktree after another message, also from `BEFORE`."""
