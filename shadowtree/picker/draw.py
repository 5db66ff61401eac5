"""The lines of the screen: a state and the time in, styled lines out, none wider than the terminal.

Styles are `bold`, `dim`, `red`, `green`, `yellow`, `cyan` and `reverse`; nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from shadowtree.base.display import count, cut, describe_age, escape, first_line, measure
from shadowtree.base.frozen import frozen
from shadowtree.picker.model import State, header_lines
from shadowtree.picker.pages import CHOICES, BranchPage, BranchRow, PlanPage, TextPage
from shadowtree.picker.previews import CONFLICT, Entry
from shadowtree.picker.rows import Row, find_agent
from shadowtree.picker.scrolling import keep_in_sight
from shadowtree.picker.texts import split_command
from shadowtree.results.messages import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.picker.pages import Line

    Counts = Mapping[str, tuple[int, int] | None]
    """How many lines a message added and removed, by id; None: not counted."""

_DEEDS = {
    "restore": "green",
    "create": "green",
    "delete": "red",
    "merge": "cyan",
    "keep": "yellow",
    "overwrite": "red",
    "leave": "dim",
    CONFLICT: "yellow",
}
_LIST_KEYS = (
    "Enter go back",
    "d diff",
    "f files",
    "u undo",
    "r redo",
    "/ filter",
    "b branches",
    "o only this",
    "s steps",
    "z reverse",
    "? help",
    "q quit",
)
_TEXT_KEYS = ("Up/Down scroll", "? help", "Esc back")
_BRANCH_KEYS = ("Right next branch", "d diff", "f files", "? help", "Enter switch", "Esc back")
_TOO_SMALL = "The window is too small. Make it larger, or press q to leave."
_NOTE_LINES = 3
"""How many lines a note takes at most."""
_READ = 2000
"""How many characters of a text are searched for its first line: prompts may be long."""
_GAP = "  "
_RIGHT = ("number", "age", "added", "removed")
"""The columns that are aligned on the right."""
_COLUMN_STYLES = {"added": "green", "removed": "red", "marks": "yellow"}


def draw(state: State, counts: Counts, now_ms: int, *, fork_sign: str = "⑂") -> list[Line]:
    """Return the lines of the whole screen."""
    if state.is_too_small:
        return _draw_too_small(state)
    notes = _draw_notes(state, now_ms)
    page, height = state.page, state.lines - len(notes) - 2
    if page is None:
        body = draw_rows(state, counts, now_ms, height=height, fork_sign=fork_sign)
    elif isinstance(page, TextPage):
        body = list(page.lines[page.top : page.top + height])
    elif isinstance(page, PlanPage):
        body = _draw_plan(page, state, height)
    else:
        body = _draw_branches(page, state, height, now_ms)
    body += [()] * (height - len(body))
    screen = [_draw_title(state), *body, *notes, _draw_keys(state)]
    return [_fit(line, state.columns) for line in screen]


def _draw_too_small(state: State) -> list[Line]:
    told = wrap(_TOO_SMALL, max(1, state.columns))
    lines: list[Line] = [((line, "bold"),) for line in told]
    return [_fit(line, state.columns) for line in (lines + [()] * state.lines)[: state.lines]]


# The frame


def _draw_title(state: State) -> Line:
    page = state.page
    right = f"session {cut(escape(state.session), 24)} "
    left = " shadowtree rewind  "
    left += _cut_front(escape(state.worktree), state.columns - measure(left + right) - 1)
    if isinstance(page, TextPage | BranchPage):
        left = f" {page.title}"
    elif isinstance(page, PlanPage):
        left = " Preview: nothing has changed yet"
    left = cut(left, max(1, state.columns - measure(right) - 1))
    return ((_pad(left, state.columns - measure(right)) + right, "reverse"),)


def _draw_notes(state: State, now_ms: int) -> list[Line]:
    """Show what happened, or else describe what is under the cursor."""
    if state.is_typing:
        found = _describe_found(state)
        return [((f"/{escape(state.query)}", "bold"), ("_", "reverse"), (f" {found}", "dim"))]
    text, style = _choose_note(state, now_ms)
    command = split_command(state.command, state.columns)[: state.height - 2]
    most = max(1, min(_NOTE_LINES, state.height - 1 - len(command)))
    wrapped = wrap(escape(text), state.columns - 2, max_lines=most, placeholder="…", break_on_hyphens=False)
    return [((line, style),) for line in (*(f" {line}" for line in wrapped or [""]), *command)]


def _choose_note(state: State, now_ms: int) -> tuple[str, str]:
    page = state.page
    if state.note:
        return state.note, "red" if state.is_error else "bold"
    if isinstance(page, PlanPage):
        entry = page.entry
        if page.warning:
            return page.warning, "yellow"
        hint = f". {entry.hint}" if entry and entry.hint and entry.deed == CONFLICT else ""
        return (f"{entry.path}: {entry.why}{hint}" if entry and entry.why else ""), "dim"
    if isinstance(page, TextPage):
        last = min(len(page.lines), page.top + state.height)
        return f"lines {page.top + 1:,}-{last:,} of {len(page.lines):,}", "dim"
    if page is not None:
        return "Enter switches to a branch, or to one of its messages, after a preview.", "dim"
    found = f"{_describe_found(state)} " if state.query else ""
    about = describe_row(state.row, now_ms) if len(state.rows) > 1 else ""
    return f"{found}{about}", "dim"


def _describe_found(state: State) -> str:
    number = len(state.rows) - 1
    more = "" if state.has_all else " so far"
    return f"{count(number, 'message')} with '{escape(state.query)}'{more}." if state.query else ""


def _draw_keys(state: State) -> Line:
    page = state.page
    if state.is_typing:
        keys: Sequence[str] = ("Type to filter", "Enter keep it", "Esc clear it")
    elif isinstance(page, TextPage):
        keys = _TEXT_KEYS
    elif isinstance(page, BranchPage):
        keys = _BRANCH_KEYS
    elif isinstance(page, PlanPage):
        keys = _list_plan_keys(page)
    else:
        keys = _LIST_KEYS
    return _join_keys(keys, state.columns)


def _list_plan_keys(page: PlanPage) -> list[str]:
    """List the keys that choose for the file under the cursor, and for all files."""
    entry = page.entry
    keys = [f"{key} {choice}" for key, choice in CHOICES.items() if entry and choice in entry.choices]
    in_conflict = [each for each in page.entries if each.is_conflict]
    if len(in_conflict) > 1:
        offered = {choice for each in in_conflict for choice in each.choices}
        letters = [key.upper() for key, choice in CHOICES.items() if choice in offered]
        keys.append(f"{'/'.join(letters)} all")
    return [
        *keys,
        "d your edit" if entry and entry.deed == CONFLICT else "d diff",
        "Enter confirm",
        "Esc cancel",
    ]


def _join_keys(keys: Sequence[str], columns: int) -> Line:
    """List the keys that fit; the last two are the most important, and always stay."""
    chosen = list(keys)
    while len(chosen) > 2 and len(_GAP.join(chosen)) + 1 > columns:
        del chosen[-3]
    spans: list[tuple[str, str]] = [(" ", "")]
    for each in chosen:
        key, _, meaning = each.partition(" ")
        spans += [(key, "bold"), (f" {meaning}", ""), (_GAP, "")]
    return tuple(spans[:-1])


# The list


@frozen
class _Cells:
    """The texts in the columns of a row."""

    number: str
    age: str
    marks: str
    text: str
    agent: str
    files: str
    added: str
    removed: str


def draw_rows(
    state: State,
    counts: Counts,
    now_ms: int,
    *,
    height: int,
    fork_sign: str = "⑂",
    has_agents: bool = False,
) -> list[Line]:
    """Draw the visible rows; texts get the width that other columns leave.

    If there is room, agents are named if they differ, or with `has_agents`.
    """
    places = _find_places(state.top, state.at, total=len(state.rows), height=height)
    shown = state.rows[places.start : places.stop]
    has_agents = has_agents or len({row.agent for row in shown if row.message is not None}) > 1
    widths: dict[str, int]
    # The width of files, whether agents are named, and the columns that must be left for the text.
    for width, has_agent, least in (
        (32, has_agents, 30),
        (20, has_agents, 26),
        (20, False, 22),
        (0, False, 0),
    ):
        cells = [_make_cells(row, counts, now_ms, fork_sign, width, has_agent) for row in shown]
        widths = {name: max(measure(getattr(each, name)) for each in cells) for name in _Cells.__match_args__}
        fixed = sum(len(_GAP) + width for name, width in widths.items() if name != "text" and width)
        room = state.columns - fixed - len(_GAP)
        if room >= least:
            break
    widths["text"] = max(8, min(room, widths["text"] if room > 100 else room))
    lines = []
    for place, row, each in zip(places, shown, cells, strict=True):
        is_chosen = place == state.at
        if row.message is None:
            lines.append(_draw_now(state, widths, is_chosen=is_chosen))
        else:
            lines.append(_join_cells(row, each, widths, is_chosen=is_chosen, columns=state.columns))
    if len(state.rows) == 1 and not state.query:
        lines.append(((f"{_GAP}No messages yet", "dim"),))
    return _count_hidden(lines, places, len(state.rows))


def _find_places(top: int, at: int, *, total: int, height: int) -> range:
    """Return the visible places. A long note, or a smaller window, leaves fewer than the model assumes."""
    first = keep_in_sight(top, at, total=total, height=height)
    return range(first, min(total, first + height))


def _count_hidden(lines: list[Line], places: range, total: int) -> list[Line]:
    """Say in the first and the last line how many more there are; the cursor is on neither."""
    if len(places) >= 3 and places.start > 0:
        lines[0] = ((f"{_GAP}↑ {places.start + 1:,} more", "dim"),)
    if len(places) >= 3 and places.stop < total:
        lines[-1] = ((f"{_GAP}↓ {total - places.stop + 1:,} more", "dim"),)
    return lines


def _make_cells(
    row: Row, counts: Counts, now_ms: int, fork_sign: str, file_width: int, has_agent: bool
) -> _Cells:
    message = row.message
    if message is None:
        return _Cells("now", "", "", "", "", "", "", "")
    counted = counts.get(message.id)
    return _Cells(
        f"#{message.number}",
        describe_age(now_ms - message.time_ms),
        _list_marks(row, fork_sign),
        first_line(message.text[:_READ]) or escape(message.id),
        cut(escape(row.agent), 12) if has_agent else "",
        name_files(message, file_width),
        f"+{counted[0]}" if counted else "",
        f"-{counted[1]}" if counted else "",
    )


def _draw_now(state: State, widths: Mapping[str, int], *, is_chosen: bool) -> Line:
    """Draw the row of now, with the number of files that changed since the last message."""
    text = ""
    if state.outside is not None:
        changed = count(state.outside, "file") if state.outside else "no files"
        text = f"{changed} changed since the last message"
    indent = sum(widths[name] + len(_GAP) for name in ("age", "marks") if widths[name])
    line = f"{_mark(is_chosen)}{'now':>{widths['number']}}{_GAP}{' ' * indent}{text}"
    return _draw_chosen(line, state.columns) if is_chosen else ((line.rstrip(), "bold"),)


def _join_cells(row: Row, cells: _Cells, widths: Mapping[str, int], *, is_chosen: bool, columns: int) -> Line:
    style = "dim" if row.message is not None and row.message.state == "undone" else ""
    spans = [(_mark(is_chosen), "bold")]
    for name, width in widths.items():
        if width:
            text = cut(getattr(cells, name), width)
            blanks = " " * (width - measure(text))
            filled = blanks + text if name in _RIGHT else text + blanks
            spans.append((filled + _GAP, style or _COLUMN_STYLES.get(name, "")))
    spans[-1] = (spans[-1][0].removesuffix(_GAP), spans[-1][1])
    return _draw_chosen("".join(text for text, _ in spans), columns) if is_chosen else tuple(spans)


def _mark(is_chosen: bool) -> str:
    return "> " if is_chosen else _GAP


def _draw_chosen(line: str, columns: int) -> Line:
    """Draw the line under the cursor, from edge to edge."""
    return ((_pad(cut(line.rstrip(), columns), columns), "reverse"),)


def _list_marks(row: Row, fork_sign: str) -> str:
    message = row.message
    assert message is not None
    letters = ("~" if row.is_edited else "") + ("?" if message.inferred else "")
    letters += "!" if _is_unprotected(message) else ""
    state = "undone" if message.state == "undone" else "open" if message.state == "open" else ""
    fork = f"{fork_sign} {row.lines_on}" if row.lines_on > 1 else ""
    return " ".join(filter(None, (letters, state, fork)))


def _is_unprotected(message: Message) -> bool:
    return bool(message.unprotected or (message.meta or {}).get("not_protected"))


def name_files(message: Message, width: int) -> str:
    """Name the first file of a message and count the others; if `width` is 0, count them all."""
    files = message.patch.files
    if message.state == "open":
        return ""
    if not files:
        return "no changes"
    if not width:
        return count(len(files), "file")
    more = f" +{len(files) - 1:,} more" if len(files) > 1 else ""
    path = escape(files[0].path)
    room = max(8, width - len(more))
    return (path if measure(path) <= room else cut(path.rpartition("/")[2], room)) + more


def describe_row(row: Row, now_ms: int) -> str:
    """Say in words what the marks of a row mean."""
    message = row.message
    if message is None:
        return "Choose a message with the arrow keys to go back to before it."
    by = f", by {escape(row.agent)}" if row.agent else ""
    told = [f"#{message.number}, {describe_age(now_ms - message.time_ms)} ago{by}"]
    if message.state == "open":
        told.append("still open")
    if message.state == "undone":
        told.append("undone on its own" if message.is_out else "undone (Enter or r redoes it)")
    if message.is_partly_reverted:
        told.append("partly reverted")
    if row.is_edited:
        told.append("files changed before it, outside any message")
    if message.inferred:
        told.append("its end was inferred")
    if _is_unprotected(message):
        number = len(message.unprotected)
        told.append(f"{count(number, 'unprotected file')} changed" if number else "not protected")
    if row.lines_on > 1:
        told.append(f"{row.lines_on} branches continue from here (b)")
    return "; ".join(told)


# The pages


def _draw_plan(page: PlanPage, state: State, height: int) -> list[Line]:
    header, above = page.make_header(state.columns), header_lines(page, state)
    if len(header) > above:
        header = [*header[: above - 1], f"{header[above - 1]} …"]
    lines: list[Line] = [((f" {text}", "bold" if place == 0 else ""),) for place, text in enumerate(header)]
    lines += [()] * (above - len(lines))
    total = len(page.entries)
    places = _find_places(page.top, page.at, total=total, height=max(1, height - above))
    entries = [_draw_entry(page.entries[place], state, is_chosen=place == page.at) for place in places]
    return lines + _count_hidden(entries, places, total)


def _draw_entry(entry: Entry, state: State, *, is_chosen: bool) -> Line:
    spans = [(f"{_mark(is_chosen)}{entry.deed:9}  ", _DEEDS[entry.deed]), (escape(entry.path), "")]
    if entry.label:
        spans.append((f"{_GAP}({escape(entry.label)})", "yellow"))
    return _draw_chosen("".join(text for text, _ in spans), state.columns) if is_chosen else tuple(spans)


def _draw_branches(page: BranchPage, state: State, height: int, now_ms: int) -> list[Line]:
    places = _find_places(page.top, page.at, total=len(page.rows), height=height)
    lines: list[Line] = []
    for place in places:
        spans = _describe_branch_row(page.rows[place], now_ms)
        if place == page.at:
            lines.append(_draw_chosen("> " + "".join(text for text, _ in spans), state.columns))
        else:
            lines.append(((_GAP, ""), *spans))
    return _count_hidden(lines, places, len(page.rows))


def _describe_branch_row(row: BranchRow, now_ms: int) -> Line:
    branch, message = row.branch, row.message
    if message is not None:
        agent = f"{_GAP}{escape(find_agent(message))}" if find_agent(message) else ""
        age = describe_age(now_ms - message.time_ms)
        text = first_line(message.text[:_READ]) or escape(message.id)
        return (
            (f"    #{message.number}{_GAP}{age}{_GAP}", "dim"),
            (f"{text}{agent}{_GAP}{name_files(message, 32)}", ""),
        )
    here = f"{_GAP}(you are on it)" if branch.state == "active" else ""
    numbers = f"{count(len(branch.messages), 'message')}, {count(branch.files, 'file')}"
    age = describe_age(now_ms - branch.time_ms)
    return ((escape(branch.name), "bold"), (f"{_GAP}{numbers}{_GAP}{age}{here}", ""))


# Widths


def _pad(text: str, width: int) -> str:
    return text + " " * (width - measure(text))


def _cut_front(text: str, width: int) -> str:
    """Shorten a text at the front, because the end of a path says more."""
    kept = text[-max(0, width) :]
    while kept and measure(kept) > width - 1:
        kept = kept[1:]
    return text if measure(text) <= width else f"…{kept}"


def _fit(line: Line, columns: int) -> Line:
    """Cut a line to the width of the screen."""
    room, spans = columns, []
    for text, style in line:
        if measure(text) > room:
            spans.append((cut(text, room) if room > 0 else "", style))
            break
        spans.append((text, style))
        room -= measure(text)
    return tuple(spans)


def to_text(lines: Iterable[Line]) -> list[str]:
    """Return lines without their styles."""
    return ["".join(text for text, _ in line).rstrip() for line in lines]
