"""Small file systems, for disks that are full or lack features; they need root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_tmpfs(where: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory; skip the test if that is not allowed."""
    with _mounted(where, "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs"):
        yield where


@contextmanager
def mounted_ext4(where: Path, image: Path) -> Iterator[Path]:
    """Mount an ext4 image, made first if there is none; skip the test if that is not allowed."""
    if not image.exists():
        image.touch()
        os.truncate(image, 16 << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no ext4 can be made here")
    with _mounted(where, "-t", "ext4", "-o", "loop", image):
        yield where


@contextmanager
def _mounted(where: Path, *arguments: str | Path) -> Iterator[None]:
    where.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, where], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


@contextmanager
def mounted_overlay(where: Path, layers: Path) -> Iterator[Path]:
    """Mount a file system whose inode numbers may change; skip the test if that is not allowed."""
    for name in ("lower", "upper", "work"):
        (layers / name).mkdir(parents=True)
    options = f"lowerdir={layers / 'lower'},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    with _mounted(where, "-t", "overlay", "-o", options, "overlay"):
        yield where
