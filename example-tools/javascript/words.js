// The export is named as the WIT interface is, and its functions in camel case. A function that
// returns a `result` returns the value, or throws the error. The promise of an async one is awaited
// before the call returns. The engine has no `Intl` and no `\p{…}` in regular expressions.
export const counting = { count, getPage };

const PUNCTUATION = '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»‹›‘’‚“”„…–—';

function count(text, top = 10) {
  const times = new Map();
  let words = 0;
  for (const piece of text.split(/\s+/)) {
    const word = trimmed(piece).toLowerCase();
    if (word === '') continue;
    times.set(word, (times.get(word) ?? 0) + 1);
    words += 1;
  }

  let characters = 0;
  for (const _ of text) characters += 1;

  const breaks = text.split('\n').length - 1;
  const lines = text === '' || text.endsWith('\n') ? breaks : breaks + 1;

  const mostFrequent = [...times]
    .map(([word, times]) => ({ word, times }))
    .sort((a, b) => b.times - a.times || (a.word < b.word ? -1 : 1))
    .slice(0, top);

  return { lines, words, characters, mostFrequent };
}

// Not by a regular expression: one for the end of a text takes quadratic time.
function trimmed(piece) {
  let start = 0;
  let end = piece.length;
  while (start < end && PUNCTUATION.includes(piece[start])) start += 1;
  while (start < end && PUNCTUATION.includes(piece[end - 1])) end -= 1;
  return piece.slice(start, end);
}

async function getPage(url) {
  let response;
  let body;
  try {
    response = await fetch(url);
    if (response.ok) body = await response.text();
  } catch (error) {
    throw `cannot get \`${url}\`: ${error.message.trim()}`;
  }
  if (!response.ok) throw `\`${url}\` answered with status ${response.status}`;
  return body;
}
