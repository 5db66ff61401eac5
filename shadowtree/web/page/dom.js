// Elements and texts. Whatever comes from the store reaches the document as a text node or an attribute, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

/** Make an element from "tag.class.class", attributes (functions become listeners) and children. */
function el(spec, attributes, ...children) {
  const [tag, ...classes] = spec.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  setAttributes(made, attributes);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

/** Make an SVG element. */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

const ICONS = {
  fold: "M6 3.5 10.5 8 6 12.5",
  fork: "M5 5.5v7M5 8.5c0 2.5 6 .5 6-3M5 5.5a1.5 1.5 0 1 0-.01 0M11 5.5a1.5 1.5 0 1 0-.01 0M5 15.5a1.5 1.5 0 1 0-.01 0",
  back: "M6.5 3.5 2.5 7.5l4 4M3 7.5h6.5a4 4 0 0 1 4 4v1",
  forward: "m9.5 3.5 4 4-4 4M13 7.5H6.5a4 4 0 0 0-4 4v1",
  close: "m4 4 8 8M12 4l-8 8",
  sun: "M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.5 1.5M11.5 11.5 13 13M3 13l1.5-1.5M11.5 4.5 13 3M5.5 8a2.5 2.5 0 1 0 5 0 2.5 2.5 0 0 0-5 0",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7",
};

function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button that does something. */
function button(label, onclick, kind = "", attributes = {}) {
  return el(`button.button${kind}`, { type: "button", onclick, ...attributes }, label);
}

// Control characters, marks of writing direction, invisible spaces and bytes that are not UTF-8.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\p{Cs}]/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Make hidden characters of a name or a line visible, so that it cannot pretend to be another. */
function visible(text) {
  return String(text).replace(HIDDEN, escapeHidden);
}

/** Make hidden characters of a longer text visible, except line breaks and tabs. */
function visibleLines(text) {
  return String(text).replace(HIDDEN, (found) => (found === "\n" || found === "\t" ? found : escapeHidden(found)));
}

function escapeHidden(character) {
  const code = character.charCodeAt(0);
  if (SHORT[character]) return SHORT[character];
  if (code >= 0xdc80 && code <= 0xdcff) return "\\x" + (code - 0xdc00).toString(16);
  return (code < 256 ? "\\x" : "\\u") + code.toString(16).padStart(code < 256 ? 2 : 4, "0");
}

const firstLine = (text) => visible(String(text).trimStart().split("\n", 1)[0]);

/** A path, isolated from the text around it. */
const pathText = (path) => el("bdi.path", { title: visible(path) }, visible(path));

/** "1 file", "3 files". */
function count(number, one, many = one + "s") {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function sizeText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; bytes >= 1000 && unit < units.length - 1; unit++) bytes /= 1000;
  return `${bytes >= 10 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** How long ago, in one unit. */
function age(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  const steps = [
    [60, 1, "s"],
    [3600, 60, "min"],
    [86400, 3600, "h"],
    [Infinity, 86400, "d"],
  ];
  const [, unit, name] = steps.find(([limit]) => seconds < limit);
  return `${Math.floor(seconds / unit)} ${name}`;
}

const moment = (time) => new Date(time).toLocaleString();

/** A time as its age; the exact moment is in the title. */
const timeText = (time) => el("time", { datetime: time, title: moment(time) }, age(time));

/** Additions and deletions, with signs. */
function counts(file) {
  if (file.additions === null || file.additions === undefined || file.binary) return null;
  const { additions, deletions } = file;
  return [
    additions ? el("span.plus", {}, `+${additions}`) : null,
    deletions ? el("span.minus", {}, `−${deletions}`) : null,
  ];
}

const LETTERS = { added: "A", modified: "M", deleted: "D", type: "T", renamed: "R" };
const STATUS_WORDS = { A: "added", M: "modified", D: "deleted", T: "type changed", R: "renamed" };

/** The letter of a change, with the word for screen readers. */
function letter(name, word = STATUS_WORDS[name]) {
  return el(
    `span.letter.${name}`,
    { title: word },
    el("span", { "aria-hidden": "true" }, name),
    el("span.sr", {}, ` ${word} `),
  );
}

/** Have a screen reader say a text. */
function speak(text) {
  $("spoken").textContent = text;
}

// While a pointer is down, nothing is redrawn under it: the browser sends no click to a button that is gone.

let isPressed = false;
const onRelease = [];

/** Wait until no pointer is down, and its click has been handled. */
function untilReleased() {
  return isPressed ? new Promise((resolve) => onRelease.push(resolve)) : Promise.resolve();
}

function connectPointer() {
  addEventListener("pointerdown", () => (isPressed = true), true);
  for (const name of ["pointerup", "pointercancel", "dragend", "blur"])
    addEventListener(name, () => setTimeout(release));
}

function release() {
  isPressed = false;
  for (const resolve of onRelease.splice(0)) resolve();
}
