"""The real agents: how to install each, point it at the stand-in for its model and run it, and its tools.

SHADOWTREE_AGENTS_CACHE   where the programs are kept, about 2 GB; without it ~/.cache/shadowtree-agents
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.agents_real.model import Call, Json

HOME = Path.home()
"""The one with npm's settings; tests have another."""
CACHE = Path(os.environ.get("SHADOWTREE_AGENTS_CACHE") or HOME / ".cache" / "shadowtree-agents")
INSTALL_S = 900
PATIENCE_S = 180
KEY = "stand-in"
"""Every agent wants a key; nobody reads it."""
OTHERS_TRACE = "others-hook-ran"
NODE = "node@22"
"""Qwen Code needs it; the others run with it too."""


class CannotInstall(Exception):
    """npm could not install a program."""


@dataclass(frozen=True)
class Program:
    """A real agent."""

    package: str
    """With its version: otherwise npm takes an older one that fits an older node."""
    binary: str
    arguments: Callable[[str, str], list[str]]
    """From the address of the model and the prompt."""
    resume: Callable[[list[str]], list[str]] | None
    """From the arguments to those that go on with the last conversation; None: it cannot without a person."""
    variables: Callable[[str, Path], dict[str, str]]
    """From the address of the model and the home."""
    shell: Callable[[str], Call]
    create: Callable[[str, str], list[Call]]
    """From a path and the text."""
    edit: Callable[[str, str, str], list[Call]]
    """From a path, the old line and the new one."""
    settings: Callable[[str], dict[str, Json]] = field(default=lambda address: {})
    """The files that are in its home, from the address of the model."""
    is_required: bool = True
    """Whether to skip it is a failure."""
    reads_prompt: bool = False
    """Whether the prompt goes to its standard input."""
    library: str = ""
    """A package that it would otherwise fetch into its settings' directory at each start."""
    library_goes_to: str = ""
    log_in: Callable[[str], list[str]] | None = None
    """The arguments that tell it once which model there is, from the address of the model."""

    @property
    def has_others_hook(self) -> bool:
        """Whether somebody else has a hook in its settings."""
        return any("hooks" in content for content in self.settings("").values())


def install(name: str) -> None:
    """Install a program, unless that version is there already."""
    program = PROGRAMS[name]
    _install("node", NODE)
    _install(name, program.package)
    if program.library:
        _install(f"{name}-library", program.library, "--ignore-scripts")


def _install(folder: str, package: str, *options: str) -> None:
    place, done = CACHE / folder, CACHE / folder / ".installed"
    if done.is_file() and done.read_text() == package:
        return
    place.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    (place / "package.json").write_text('{"private": true}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *options, package]
    own_home = {**os.environ, "HOME": str(HOME)}
    try:
        ended = subprocess.run(
            command, cwd=place, env=own_home, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"npm install {package}: {error}") from error
    if ended.returncode != 0:
        raise CannotInstall(f"npm install {package}: {ended.stderr.strip()[-500:]}")
    done.write_text(package)


def prepare(name: str, home: Path, address: str) -> None:
    """Write the settings that a program needs to talk to the stand-in."""
    program = PROGRAMS[name]
    for path, content in program.settings(address).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(json.dumps(content, indent=3) + "\n")
    if program.library:
        place = home / program.library_goes_to
        for part in ("node_modules", "package.json", "package-lock.json"):
            (place / part).symlink_to(CACHE / f"{name}-library" / part)
    if program.log_in is not None:
        execute(name, home, home, address, program.log_in(address))


def run(name: str, home: Path, worktree: Path, address: str, prompt: str, *, goes_on: bool = False) -> str:
    """Run one turn without a person, and give what it prints. Whatever it leaves running is killed."""
    program = PROGRAMS[name]
    arguments = program.arguments(address, prompt)
    if goes_on:
        assert program.resume is not None
        arguments = program.resume(arguments)
    typed = prompt.partition(" ")[2] if prompt.startswith("/") else prompt
    given = typed.encode() if program.reads_prompt else b""
    return execute(name, home, worktree, address, arguments, given)


def make_command(name: str, arguments: list[str]) -> list[str]:
    """Give the command line of a program."""
    return [str(CACHE / name / "node_modules" / ".bin" / PROGRAMS[name].binary), *arguments]


def make_environment(name: str, home: Path, address: str) -> dict[str, str]:
    """Give the variables that a program runs with."""
    variables = {**surroundings(home), "NO_COLOR": "1", **PROGRAMS[name].variables(address, home)}
    variables["PATH"] = f"{CACHE / 'node' / 'node_modules' / '.bin'}:{variables['PATH']}"
    return variables


def execute(
    name: str, home: Path, place: Path, address: str, arguments: list[str], typed: bytes = b""
) -> str:
    """Run a program with these arguments, and give what it prints."""
    printed = home / "printed.txt"
    with (
        printed.open("wb") as output,
        subprocess.Popen(
            make_command(name, arguments),
            cwd=place,
            env=make_environment(name, home, address),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.communicate(typed, timeout=PATIENCE_S)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    text = printed.read_text("utf-8", "replace")
    assert process.returncode == 0, f"{name} exited with {process.returncode}:\n{text[-4000:]}"
    return text


def end_all(home: Path) -> None:
    """Kill what programs have left running for a person with this home, as Cline does."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"HOME=" + os.fsencode(home) in variables:
            with suppress(ProcessLookupError):
                os.kill(int(entry.parent.name), signal.SIGKILL)


def surroundings(home: Path) -> dict[str, str]:
    """Give the environment of a person with this home, and nothing else of ours: no keys, no settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return {**kept, "HOME": str(home)}


def _others_hook(event: str) -> Json:
    """Give settings in which somebody else has a hook: it makes the file `OTHERS_TRACE` in the home."""
    return {"hooks": {event: [{"hooks": [{"type": "command", "command": f'touch "$HOME/{OTHERS_TRACE}"'}]}]}}


def _claude_variables(address: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }


CLAUDE_CODE = Program(
    package="@anthropic-ai/claude-code@2.1.326",
    binary="claude",
    variables=_claude_variables,
    arguments=lambda address, prompt: ["-p", prompt, "--allowedTools", "Bash,Edit,Read,Write"],
    resume=lambda arguments: [*arguments, "-c"],
    settings=lambda address: {".claude/settings.json": _others_hook("Stop")},
    shell=lambda command: Call("Bash", {"command": command, "description": "scripted"}),
    create=lambda path, text: [Call("Write", {"file_path": path, "content": text})],
    edit=lambda path, old, new: [
        Call("Read", {"file_path": path}),
        Call("Edit", {"file_path": path, "old_string": old, "new_string": new}),
    ],
)


def codex_settings(address: str) -> list[str]:
    """Give the arguments that say which model Codex uses; alone, they start it full-screen."""
    provider = f'{{name = "s", base_url = "{address}/v1", wire_api = "responses", env_key = "STAND_IN_KEY"}}'
    settings = {
        "model": '"gpt-5.5"',  # one that it knows: to others it offers no apply_patch
        "model_provider": '"s"',
        "model_providers.s": provider,
        "check_for_update_on_startup": "false",
        "analytics.enabled": "false",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [*words, "--dangerously-bypass-approvals-and-sandbox"]


def codex_arguments(address: str, prompt: str, *, trusts_hooks: bool = True) -> list[str]:
    """Give the arguments of one turn; nobody is there to review the hooks, unless they were before."""
    trust = ["--dangerously-bypass-hook-trust"] if trusts_hooks else []
    return ["exec", *codex_settings(address), "--skip-git-repo-check", *trust, prompt]


def _patch(kind: str, path: str, *lines: str) -> Call:
    text = "\n".join(["*** Begin Patch", f"*** {kind} File: {path}", *lines, "*** End Patch"])
    return Call("apply_patch", {"input": text})


CODEX = Program(
    package="@openai/codex@0.169.0",
    binary="codex",
    variables=lambda address, home: {"STAND_IN_KEY": KEY},
    arguments=codex_arguments,
    resume=lambda arguments: [*arguments[:-1], "resume", "--last", arguments[-1]],
    settings=lambda address: {".codex/hooks.json": _others_hook("Stop")},
    shell=lambda command: Call("exec_command", {"cmd": command}),
    create=lambda path, text: [_patch("Add", path, *(f"+{line}" for line in text.splitlines()))],
    edit=lambda path, old, new: [_patch("Update", path, "@@", f"-{old}", f"+{new}")],
)


def _quiet(kind: str) -> Json:
    """Give the settings that Gemini CLI, and Qwen Code after it, need to ask nothing."""
    return {
        "security": {"auth": {"selectedType": kind}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }


GEMINI = Program(
    package="@google/gemini-cli@0.61.0",
    binary="gemini",
    variables=lambda address, home: {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": address,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    arguments=lambda address, prompt: ["--approval-mode", "yolo", "-m", "gemini-2.5-flash", "-p", prompt],
    resume=lambda arguments: [*arguments, "--resume", "latest"],
    settings=lambda address: {
        ".gemini/settings.json": {**_quiet("gemini-api-key"), **_others_hook("AfterAgent")}
    },
    shell=lambda command: Call("run_shell_command", {"command": command, "description": "scripted"}),
    create=lambda path, text: [Call("write_file", {"file_path": path, "content": text})],
    edit=lambda path, old, new: [
        Call(
            "replace",
            {"file_path": path, "instruction": "scripted", "old_string": old, "new_string": new},
        )
    ],
)


def _opencode_settings(address: str, name: str = "opencode") -> dict[str, Json]:
    model = {"name": "s", "tool_call": True, "limit": {"context": 100_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{address}/v1", "apiKey": KEY},
        "models": {"s": model},
    }
    settings = {
        "model": "s/s",
        "small_model": "s/s",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": {"s": provider},
    }
    return {f".config/{name}/{name}.json": settings}


def _command_option(prompt: str) -> list[str]:
    return ["--command", prompt.partition(" ")[0][1:]] if prompt.startswith("/") else []


def _opencode_variables(name: str) -> dict[str, str]:
    parts = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE")
    return {f"{name}_DISABLE_{part}": "1" for part in parts}


OPENCODE = Program(
    package="opencode-ai@1.18.33",
    binary="opencode",
    variables=lambda address, home: _opencode_variables("OPENCODE"),
    arguments=lambda address, prompt: ["run", *_command_option(prompt)],
    resume=lambda arguments: [*arguments, "-c"],
    reads_prompt=True,  # it would put quotes around arguments; of a slash command it reads what follows
    settings=_opencode_settings,
    library="@opencode-ai/plugin@1.18.33",
    library_goes_to=".config/opencode",
    shell=lambda command: Call("bash", {"command": command, "description": "scripted"}),
    create=lambda path, text: [Call("write", {"filePath": path, "content": text})],
    edit=lambda path, old, new: [
        Call("read", {"filePath": path}),
        Call("edit", {"filePath": path, "oldString": old, "newString": new}),
    ],
)

KILO = replace(
    OPENCODE,
    package="@kilocode/cli@7.7.7",  # of some later ones, a half is missing in the registry
    binary="kilo",
    is_required=False,
    variables=lambda address, home: _opencode_variables("KILO"),
    settings=lambda address: _opencode_settings(address, "kilo"),
    library="",
)

COPILOT = Program(
    package="@github/copilot@1.0.102",
    binary="copilot",
    is_required=False,
    variables=lambda address, home: {
        "COPILOT_PROVIDER_BASE_URL": f"{address}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "gpt-4.1",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_ALLOW_ALL": "true",
    },
    arguments=lambda address, prompt: ["--allow-all", "-p", prompt],
    resume=lambda arguments: [*arguments, "--continue"],
    shell=lambda command: Call("bash", {"command": command, "description": "scripted"}),
    create=lambda path, text: [Call("create", {"path": path, "file_text": text})],
    edit=lambda path, old, new: [
        Call("view", {"path": path}),
        Call("edit", {"path": path, "old_str": old, "new_str": new}),
    ],
)

QWEN = Program(
    package="@qwen-code/qwen-code@0.24.4",
    binary="qwen",
    is_required=False,
    variables=lambda address, home: {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_MODEL": "s",
    },
    arguments=lambda address, prompt: ["--approval-mode", "yolo", "-p", prompt],
    resume=lambda arguments: [*arguments, "-c"],
    settings=lambda address: {
        ".qwen/settings.json": {"$version": 4, **_quiet("openai"), **_others_hook("Stop")}
    },
    shell=lambda command: Call("run_shell_command", {"command": command, "is_background": False}),
    create=lambda path, text: [Call("write_file", {"file_path": path, "content": text})],
    edit=lambda path, old, new: [
        Call("read_file", {"file_path": path}),
        Call("edit", {"file_path": path, "old_string": old, "new_string": new}),
    ],
)

CLINE = Program(
    package="cline@3.0.65",
    binary="cline",
    is_required=False,
    variables=lambda address, home: {"CLINE_NO_AUTO_UPDATE": "1"},
    log_in=lambda address: [
        *("auth", "-p", "openai-compatible", "-k", KEY, "-m", "s", "-b", f"{address}/v1"),
    ],
    arguments=lambda address, prompt: ["-P", "openai-compatible", "-m", "s", prompt],
    resume=None,
    shell=lambda command: Call("run_commands", {"commands": [command]}),
    create=lambda path, text: [Call("editor", {"path": path, "new_text": text})],
    edit=lambda path, old, new: [Call("editor", {"path": path, "old_text": old, "new_text": new})],
)

PROGRAMS = {
    "claude-code": CLAUDE_CODE,
    "codex": CODEX,
    "gemini": GEMINI,
    "opencode": OPENCODE,
    "copilot": COPILOT,
    "qwen": QWEN,
    "kilo": KILO,
    "cline": CLINE,
}
"""By the name that `shadowtree hooks install` takes."""
RESUMING = [name for name, program in PROGRAMS.items() if program.resume is not None]
"""Those that can go on with a conversation without a person."""
