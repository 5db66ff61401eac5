"""What the pages of the tests and the screenshots show: a small shop, and an agent that works on it."""

from __future__ import annotations

import struct
import zlib

from shadowtree import Shadow
from tests.browser.ui import Agent, Writes, write


def picture(red: int, green: int, blue: int, size: int = 48) -> bytes:
    """A PNG of one colour."""
    row = b"\0" + bytes((red, green, blue)) * size
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * size)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


SHOP = '''"""A small shop."""

import json

TAX = 0.19


def read_prices(path):
    """Read the price list."""
    with open(path) as file:
        return json.load(file)


def total(items, prices):
    """Add up the prices."""
    result = 0
    for item in items:
        result += prices[item]
    return result


def receipt(items, prices):
    """Print a receipt."""
    for item in items:
        print(item, prices[item])
    print("total", total(items, prices))


def is_open(hour):
    """Whether the shop is open."""
    return 9 <= hour < 18


def greet(name):
    """Greet a customer."""
    print("Hello,", name)
'''
PRICES = '{"apple": 3, "pear": 4}\n'


def begin(shadow: Shadow) -> Agent:
    """Write the shop, as it was before any agent came."""
    files: Writes = {
        "shop.py": SHOP,
        "prices.json": PRICES,
        "notes.md": "ask Ana\n",
        "logo.png": picture(70, 80, 200),
    }
    write(shadow.worktree, files)
    shadow.wrap()
    return Agent(shadow)


TAXED = SHOP.replace("    return result\n", "    return round(result * (1 + TAX), 2)\n")
LATER = TAXED.replace("hour < 18", "hour < 20")


def tell(shadow: Shadow) -> Agent:
    """Four turns: an edit, a created and a deleted file, a picture, and another edit of the first file."""
    agent = begin(shadow)
    agent.work("tax", "Add tax to the total\n\nand round it to cents", {"shop.py": TAXED}, agent="claude")
    tests = "def test_total():\n    assert True\n"
    changes: Writes = {"tests/test_shop.py": tests, "notes.md": None}
    agent.work("tests", "Write tests, remove the notes", changes, agent="claude")
    agent.work("logo", "Make the logo green", {"logo.png": picture(40, 160, 90)}, agent="codex")
    agent.work("hours", "Open until eight", {"shop.py": LATER}, agent="claude")
    return agent
