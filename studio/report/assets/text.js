// Text of models is shown as text alone: no function here, or that uses these, parses any as HTML.

const HARMFUL =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
const CITED = /(?<![\w\]])\[(0(?:\.\d+)*(?:\s*[,;]\s*0(?:\.\d+)*)*)\]|\bframe (0(?:\.\d+)*)\b|\[source: ?([^\]\n]{1,200})\]/gi;
const SHOWN = 20000;

// Return an element. Properties that are no attribute: text, on (listeners), data.
function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.append(marked(value));
    else if (name === "on") for (const [kind, act] of Object.entries(value)) element.addEventListener(kind, act);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) if (value !== null) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Return the text as a node in which control, bidirectional and invisible characters are shown by their numbers.
function marked(text) {
  const plain = String(text).replace(/\r\n/g, "\n");
  if (plain.search(HARMFUL) < 0) return document.createTextNode(plain);
  const out = document.createDocumentFragment();
  let from = 0;
  for (const match of plain.matchAll(HARMFUL)) {
    out.append(plain.slice(from, match.index), control(match[0]));
    from = match.index + match[0].length;
  }
  out.append(plain.slice(from));
  return out;
}

function control(character) {
  const mark = document.createElement("span");
  mark.className = "control";
  mark.textContent = name_of(character);
  return mark;
}

function name_of(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// Return the text on one line, harmless, of at most `most` characters: for labels, titles and canvases.
function line(text, most = 200) {
  const plain = String(text ?? "").slice(0, most * 4).replace(/\s+/g, " ").trim().replace(HARMFUL, "\ufffd");
  const letters = Array.from(plain);
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : plain;
}

// Return the text with its citations as links: of frames to the frames, of documents to a search for them.
function cited(text, model) {
  const out = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(CITED)) {
    const link = citation(match, model);
    if (!link) continue;
    out.append(marked(text.slice(from, match.index)), link);
    from = match.index + match[0].length;
  }
  out.append(marked(text.slice(from)));
  return out;
}

function citation(match, model) {
  const [whole, list, single, source] = match;
  if (source) {
    const act = (event) => (event.preventDefault(), search_for(source.trim()));
    return h("a", { href: "#view=tree", class: "source", title: "search the run for this document", on: { click: act }, text: whole });
  }
  const ids = (list ?? single).split(/\s*[,;]\s*/);
  if (!ids.every((id) => model.frames.has(id))) return null;
  const links = ids.map((id) => frame_link(id, model));
  const between = links.flatMap((link, place) => (place ? [", ", link] : [link]));
  return h("span", { class: "cite" }, single ? "frame " : "[", ...between, single ? "" : "]");
}

function frame_link(id, model, text = id) {
  const frame = model.frames.get(id);
  return h("a", { href: `#frame=${id}`, class: "id", title: frame ? line(frame.task, 120) : null, text });
}

// Return a block of text; of a huge one the start, with a button for more.
function block(text, { model = null, kind = "text" } = {}) {
  const put = (part) => (model ? cited(part, model) : marked(part));
  if (text === "") return h("p", { class: "none", text: "(empty)" });
  const pre = h("pre", { class: kind, dir: "auto" });
  let shown = 0;
  const more = h("button", { type: "button", class: "more" });
  const show = (count) => {
    pre.append(put(text.slice(shown, shown + count)));
    shown += count;
    const left = text.length - shown;
    more.hidden = left <= 0;
    more.textContent = `Show ${number(Math.min(left, SHOWN * 10))} more of ${number(left)} characters`;
  };
  more.addEventListener("click", () => show(SHOWN * 10));
  show(SHOWN);
  return h("div", {}, pre, more);
}

function number(value) {
  return value.toLocaleString("en");
}

// Return a count in few letters: 950, 1.2k, 34k, 5.6M.
function short(value) {
  if (value < 1000) return String(value);
  const [scaled, unit] = value < 1e6 ? [value / 1e3, "k"] : [value / 1e6, "M"];
  return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)}${unit}`;
}

function money(value) {
  if (value === null) return "unknown";
  return `$${value === 0 ? "0" : value < 0.01 ? value.toPrecision(2) : value.toFixed(value < 10 ? 3 : 2)}`;
}

function duration(seconds) {
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.round(minutes / 1440)} days`;
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

function clock(time) {
  return time ? new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : "at an unknown time";
}
