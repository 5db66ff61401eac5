// Which words differ between two versions of a line.

const TOKEN = /\w+|\s+|[^\w\s]/gu;
const MOST_TOKENS = 300;

/** Return the differing ranges of both lines as [[from, to], …], or null if they have too little in common. */
function differingWords(old, changed) {
  const a = old.match(TOKEN) || [];
  const b = changed.match(TOKEN) || [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const middle = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  if (middle[0].length > MOST_TOKENS || middle[1].length > MOST_TOKENS) return null;
  const kept = commonTokens(...middle);
  const isCommon = (tokens, side) =>
    tokens.map((token, index) => index < start || index >= tokens.length - end || kept[side].has(index - start));
  const [inA, inB] = [isCommon(a, 0), isCommon(b, 1)];
  const shared = a.reduce((sum, token, index) => sum + (inA[index] && token.trim() ? token.length : 0), 0);
  if (shared * 3 < Math.min(old.trim().length, changed.trim().length)) return null;
  return [rangesOf(a, inA), rangesOf(b, inB)];
}

/** The longest common subsequence, as the indexes of both sides. */
function commonTokens(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] =
        a[i] === b[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const kept = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) (kept[0].add(i++), kept[1].add(j++));
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i++;
    else j++;
  }
  return kept;
}

/** Join neighbouring tokens that are not common into ranges of characters. */
function rangesOf(tokens, isCommon) {
  const ranges = [];
  let at = 0;
  tokens.forEach((token, index) => {
    if (!isCommon[index]) {
      if (ranges.length && ranges.at(-1)[1] === at) ranges.at(-1)[1] = at + token.length;
      else ranges.push([at, at + token.length]);
    }
    at += token.length;
  });
  return ranges;
}
