// The page: opens the data, keeps the address and the view in step, and hears the keys.

const VIEWS = ["overview", "tree", "frame", "time", "steps"];
let page_tree = null;
let page_rows = null;
let page_model = null;
let search_number = 0;

function place_of(hash) {
  const given = new URLSearchParams(hash.slice(1));
  if (given.has("frame")) return { view: "frame", frame: given.get("frame") };
  const view = VIEWS.includes(given.get("view")) ? given.get("view") : "overview";
  return { view, frame: null, event: Number(given.get("event")) || 1 };
}

async function show(focus = false) {
  const model = page_model;
  const place = place_of(location.hash);
  const content = document.getElementById("content");
  const before_view = document.body.dataset.view;
  document.body.dataset.view = place.view;
  document.getElementById("tip").hidden = true;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.view === place.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const frame = place.view === "frame" ? (place.frame ?? page_tree.active ?? "0") : null;
  page_tree.open = frame;
  if (frame !== null && model.frames.has(frame)) {
    reveal(page_tree, frame);
    page_rows.refresh();
    page_rows.scroll_to(frame);
  }
  page_rows.draw();
  document.title = `${frame === null ? "" : `${line(frame, 40)} · `}${line(model.run_id, 60)} · Cactus report`;
  if (place.view === "tree") {
    document.getElementById("tree").focus();
    return;
  }
  const wanted = location.hash;
  const made = await made_of(model, place, frame);
  if (location.hash !== wanted && place.view !== "steps") return;
  content.replaceChildren(made);
  content.scrollTop = 0;
  if (before_view !== place.view || frame !== null) scrollTo(0, 0);
  if (focus) content.focus({ preventScroll: true });
}

function made_of(model, place, frame) {
  if (place.view === "frame") return frame_view(model, frame);
  if (place.view === "time") return timeline_view(model);
  if (place.view === "steps") return steps_view(model, Math.max(0, Math.min(model.events.length, place.event) - 1));
  return overview(model);
}

function open_frame(id, quiet = false) {
  if (!quiet) {
    location.hash = `frame=${id}`;
    return;
  }
  history.replaceState(null, "", `#frame=${id}`);
  show();
}

function search_for(text) {
  const field = document.getElementById("search");
  field.value = text;
  searched(text);
  location.hash = "view=tree";
}

// Show the frames whose task or answer has the text, then those whose prompts, replies and outputs have it.
async function searched(text) {
  search_number += 1;
  const mine = search_number;
  const needle = text.trim().toLowerCase();
  Object.assign(page_tree, { needle, found: new Set() });
  page_rows.refresh();
  document.getElementById("tree").scrollTop = 0;
  if (needle.length < 2) return;
  await search_texts(page_model, needle, (frames, part) => {
    const fresh = frames.some((id) => !page_tree.found.has(id));
    for (const id of frames) page_tree.found.add(id);
    if (fresh) page_rows.refresh();
    const found = document.getElementById("found");
    const said_now = found.textContent.split(" · ")[0];
    found.textContent = part < 1 ? `${said_now} · prompts ${Math.round(part * 100)} %` : said_now;
  }, () => mine !== search_number);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const field = event.target.closest("input, textarea, select");
  const typing = field && field.type !== "range";
  const focused = event.target.closest("a, button, summary, canvas, .graph, #content input");
  if (event.key === "Escape") return escape_from(field);
  if (typing && field.id === "search" && (event.key === "ArrowDown" || event.key === "Enter")) {
    event.preventDefault();
    document.getElementById("tree").focus();
    return;
  }
  if (typing) return;
  const arrows = { ArrowDown: () => page_rows.move(1), ArrowUp: () => page_rows.move(-1), ArrowLeft: page_rows.left, ArrowRight: page_rows.right, Home: () => page_rows.move(-Infinity), End: () => page_rows.move(Infinity),
    PageDown: () => page_rows.move(15), PageUp: () => page_rows.move(-15), Enter: () => page_tree.active && open_frame(page_tree.active), " ": () => page_tree.active && open_frame(page_tree.active) };
  const letters = { j: () => page_rows.move(1), k: () => page_rows.move(-1), h: page_rows.left, l: page_rows.right, f: page_rows.next_bad, "?": help, "/": () => search_field(), "[": () => step(-1), "]": () => step(1) };
  VIEWS.forEach((view, place) => (letters[place + 1] = () => go_to(view)));
  const in_tree = Boolean(event.target.closest("#tree"));
  const act = letters[event.key] ?? (in_tree || (event.target === document.body && !focused) ? arrows[event.key] : undefined);
  if (!act || (focused && !in_tree && arrows[event.key])) return;
  event.preventDefault();
  act();
}

function escape_from(field) {
  const search = document.getElementById("search");
  if (search.value || page_tree.states.size || page_tree.kinds.size) {
    search.value = "";
    page_tree.states.clear();
    page_tree.kinds.clear();
    searched("");
    page_rows.scroll_to(page_tree.active);
  } else if (field) field.blur();
  document.getElementById("tree").focus();
}

function step(by) {
  const view = document.querySelector("#content > .steps");
  if (view && document.body.dataset.view === "steps") view.step(by);
  else go_to("steps");
}

function go_to(view) {
  location.hash = view === "frame" && page_tree.active ? `frame=${page_tree.active}` : `view=${view}`;
}

function search_field() {
  if (getComputedStyle(document.getElementById("treepane")).display === "none") location.hash = "view=tree";
  requestAnimationFrame(() => document.getElementById("search").select());
}

function help() {
  document.getElementById("help").showModal();
}

function listen_to_page() {
  let later = 0;
  document.addEventListener("keydown", keys);
  addEventListener("hashchange", () => show(true));
  document.getElementById("ask").addEventListener("click", help);
  document.getElementById("search").addEventListener("input", (event) => {
    clearTimeout(later);
    later = setTimeout(() => searched(event.target.value), 120);
  });
  document.getElementById("fold").addEventListener("click", () => {
    for (const frame of page_model.frames.values()) if (frame.children.length && frame.parent !== null) page_tree.folded.add(frame.id);
    page_rows.refresh();
  });
  document.getElementById("unfold").addEventListener("click", () => {
    page_tree.folded.clear();
    page_rows.refresh();
  });
  addEventListener("beforeprint", printed);
  matchMedia("print").addEventListener("change", (event) => event.matches && printed());
}

async function start() {
  const model = (page_model = build(await unpack("index")));
  page_tree = tree_of(model);
  page_rows = tree_view(page_tree, open_frame);
  document.getElementById("run").textContent = line(model.run_id, 80);
  document.getElementById("status").replaceChildren(h("span", { class: `badge ${model.status}`, text: model.status === "running" ? "no end yet" : model.status }));
  document.getElementById("sharehead").textContent = model.priced ? "cost" : "share";
  document.getElementById("chips").append(chips(page_tree, page_rows.refresh));
  listen_to_page();
  page_rows.refresh();
  requestAnimationFrame(() => performance.mark("first row"));
  await show();
  performance.mark("opened");
}

function failed(error) {
  const text = typeof DecompressionStream === "undefined" ? "This browser cannot open the report: it needs one of 2023 or later." : `The report could not be opened: ${error.message}`;
  document.getElementById("content").replaceChildren(h("p", { class: "notice failed", text }));
}

globalThis.report = { build, critical, stack_at, laid_out, axis_of, model: () => page_model };
start().catch(failed);
