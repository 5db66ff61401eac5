// A small tokenizer for colours: comments, strings, keywords and numbers. Wrong in rare corners, and then only a colour.

const words = (text) => new Set(text.split(" "));
const C_WORDS =
  "if else for while do switch case default break continue return struct class enum interface static const void int long char float double bool public private protected new delete this try catch finally throw import package extends implements namespace using template typename virtual override final true false null nullptr func type var let map range go defer chan select fn mut impl trait pub use mod match where async await move ref self Self crate loop unsafe dyn as in fun val when object guard def string byte";
const SCRIPT_WORDS =
  "const let var function return if else for while do switch case default break continue new delete typeof instanceof in of class extends super this import export from as async await yield try catch finally throw true false null undefined void static get set interface type enum implements readonly declare namespace";
const PYTHON_WORDS =
  "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case None True False self";
const SHELL_WORDS =
  "if then else elif fi for in do done while until case esac function return local export set unset echo cd exit source";
const SQL_WORDS =
  "select from where insert into values update set delete create table index view drop alter add primary key foreign references not null unique default join left right inner outer on group by order limit offset having union and or as distinct begin commit rollback";
const RUBY_WORDS =
  "def end class module if elsif else unless case when while until do return yield begin rescue ensure raise require include attr_accessor nil true false self then and or not";

const C_LIKE = { line: "//", block: ["/*", "*/"], quotes: "\"'`", words: words(C_WORDS) };
const HASH = { line: "#", quotes: "\"'", words: words("true false null yes no on off") };
const LANGUAGES = {
  script: { line: "//", block: ["/*", "*/"], quotes: "\"'`", words: words(SCRIPT_WORDS) },
  python: {
    line: "#",
    blocks: [
      ['"""', '"""'],
      ["'''", "'''"],
    ],
    quotes: "\"'",
    words: words(PYTHON_WORDS),
  },
  shell: { line: "#", quotes: "\"'", words: words(SHELL_WORDS) },
  ruby: { line: "#", quotes: "\"'`", words: words(RUBY_WORDS) },
  sql: { line: "--", block: ["/*", "*/"], quotes: "'\"", words: words(SQL_WORDS), ignoresCase: true },
  css: {
    block: ["/*", "*/"],
    quotes: "\"'",
    words: words("important media supports keyframes import from to and not root hover focus"),
  },
  markup: { block: ["<!--", "-->"], quotes: "\"'", words: new Set() },
  json: { quotes: '"', words: words("true false null") },
  lua: {
    line: "--",
    quotes: "\"'",
    words: words(
      "local function end if then else elseif for while do repeat until return nil true false and or not in",
    ),
  },
};
const ENDINGS = {
  script: "js mjs cjs jsx ts tsx vue svelte",
  python: "py pyi pyx",
  shell: "sh bash zsh fish dockerfile makefile",
  ruby: "rb rake gemspec",
  sql: "sql",
  css: "css scss less",
  markup: "html htm xml svg xhtml",
  json: "json jsonc json5",
  lua: "lua hs",
};

/** The language of a file by its ending; null: plain text. */
function languageOf(path) {
  const name = baseName(path).toLowerCase();
  const ending = name.slice(name.lastIndexOf(".") + 1);
  const found = Object.keys(ENDINGS).find((each) => ENDINGS[each].split(" ").includes(ending));
  if (found) return LANGUAGES[found];
  if (/^(c|h|cc|cpp|cxx|hpp|java|go|rs|cs|swift|kt|kts|scala|php|dart|zig|proto|m|mm|groovy|gradle)$/.test(ending))
    return C_LIKE;
  if (/^(ya?ml|toml|ini|cfg|conf|env|properties|tf|gitignore|shadowtreeignore|nix|r|pl|ex|exs|cmake)$/.test(ending))
    return HASH;
  return null;
}

/** Return a function from line to [[from, to, class], …]; it remembers comments and strings that span lines. */
function makeTokenizer(language) {
  if (!language) return () => [];
  const blocks = (language.blocks || []).map(([open, close]) => ({ open, close, kind: "q" }));
  if (language.block) blocks.push({ open: language.block[0], close: language.block[1], kind: "m" });
  let inside = null;
  return (line) => {
    const tokens = [];
    for (let at = 0; at < line.length;) {
      const token = inside ? readBlock(line, at, inside) : readToken(line, at, language, blocks);
      inside = token.inside || null;
      if (token.kind) tokens.push([at, token.end, token.kind]);
      at = token.end;
    }
    return tokens;
  };
}

function readBlock(line, at, block) {
  const close = line.indexOf(block.close, at);
  return close < 0
    ? { end: line.length, kind: block.kind, inside: block }
    : { end: close + block.close.length, kind: block.kind };
}

function readToken(line, at, language, blocks) {
  const block = blocks.find((each) => line.startsWith(each.open, at));
  if (block) {
    const rest = readBlock(line, at + block.open.length, block);
    return { ...rest, end: Math.max(rest.end, at + block.open.length) };
  }
  if (language.line && line.startsWith(language.line, at)) return { end: line.length, kind: "m" };
  if (language.quotes.includes(line[at])) return { end: endOfString(line, at), kind: "q" };
  const word = /[\p{L}_$][\p{L}\p{N}_$]*|\d[\w.]*|\s+|./uy;
  word.lastIndex = at;
  const found = (word.exec(line) || [line[at]])[0];
  const known = language.words.has(language.ignoresCase ? found.toLowerCase() : found);
  return { end: at + found.length, kind: known ? "k" : /^\d/.test(found) ? "d" : null };
}

function endOfString(line, at) {
  for (let index = at + 1; index < line.length; index++) {
    if (line[index] === "\\") index++;
    else if (line[index] === line[at]) return index + 1;
  }
  return line.length;
}

/** A line as nodes: coloured by tokens, with marks around ranges. */
function paintLine(text, tokens, marks) {
  const cuts = new Set([0, text.length]);
  for (const [from, to] of [...tokens, ...marks]) cuts.add(from).add(to);
  const places = [...cuts].sort((a, b) => a - b);
  const nodes = [];
  for (let index = 0; index + 1 < places.length; index++) {
    const [from, to] = [places[index], places[index + 1]];
    const token = tokens.find((each) => each[0] <= from && to <= each[1]);
    const isMarked = marks.some((each) => each[0] <= from && to <= each[1]);
    const piece = visibleLines(text.slice(from, to));
    const node = token ? el(`span.${token[2]}`, {}, piece) : piece;
    nodes.push(isMarked ? el("mark", {}, node) : node);
  }
  return nodes;
}
