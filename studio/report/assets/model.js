// The run as its events tell it: frames, sessions, spans of time, and what each subtree cost.

const MARKS = { done: "✓", failed: "✗", limited: "◆", waiting: "⏸", running: "●" };

function build(index) {
  const model = { run_id: index.run_id, events: index.events, frames: new Map(), sessions: [], result: null, settings: {}, bound: null };
  model.events.forEach((event, place) => take(model, event, place));
  model.task = index.events.find((event) => event.e === "run");
  if (!model.frames.size) frame_of(model, "0").task = model.task?.task ?? "";
  settle(model);
  model.order = ordered(model);
  add_up(model);
  model.spans = spans_of(model);
  return model;
}

function frame_of(model, id) {
  let frame = model.frames.get(id);
  if (frame) return frame;
  const cut = id.lastIndexOf(".");
  const parent = cut < 0 ? null : id.slice(0, cut);
  frame = { id, parent, depth: id.split(".").length - 1, task: "", kind: null, state: "running", attempts: 1, role: null,
    limit: null, plan: null, asked: false, answer: null, made: null, ended: null, seen: [], children: [] };
  model.frames.set(id, frame);
  if (parent !== null) frame_of(model, parent).children.push(id);
  return frame;
}

function take(model, event, place) {
  const session = model.sessions.at(-1);
  if (session && event.e !== "run") session.last = Math.max(session.last, event.time);
  if (event.e === "run") {
    model.sessions.push({ begin: event.time, last: event.time, number: event.session, from: place, status: null });
    model.settings = event.settings ?? {};
    model.bound = event.bound ?? null;
  } else if (event.e === "end") {
    model.result = event.result;
    if (session) session.status = event.result.status;
  }
  if (event.frame === undefined) return;
  const frame = frame_of(model, event.frame);
  frame.seen.push(place);
  frame.made ??= event.time;
  change(model, frame, event, place);
}

function change(model, frame, event, place) {
  if (event.e === "frame") Object.assign(frame, { task: event.task, kind: event.kind, named: place });
  else if (event.e === "step") {
    reopen(model, frame);
    frame.role = event.role;
    frame.attempts = Math.max(frame.attempts, event.attempt);
  } else if (event.e === "plan") frame.plan = place;
  else if (event.e === "answer") frame.answer = place;
  else if (event.e === "limit") frame.limit = event.limit;
  else if (event.e === "approval") frame.asked = event.decision === "asked";
  else if (event.e === "done") {
    frame.state = event.success ? "done" : "failed";
    frame.ended = event.time;
  }
}

// A step on a frame that was done begins it anew, and with it all above.
function reopen(model, frame) {
  for (let at = frame; at && at.state !== "running"; at = model.frames.get(at.parent)) {
    at.state = "running";
    at.ended = null;
  }
}

function settle(model) {
  const last = model.sessions.at(-1);
  model.ended = Boolean(last?.status);
  model.status = last?.status ?? "running";
  for (const frame of model.frames.values()) {
    if (frame.state === "running" && frame.asked) frame.state = "waiting";
    else if (frame.state === "running" && model.status === "limited") frame.state = "limited";
    else if (frame.state === "failed" && frame.limit) frame.state = "limited";
  }
}

function state_name(model, state) {
  return state === "running" && model.ended ? "unfinished" : state;
}

// Return the frames' ids, each before its children, these in the order of their numbers.
function ordered(model) {
  const rank = (id) => Number(id.slice(id.lastIndexOf(".") + 1));
  const out = [];
  const rest = [...model.frames.values()].filter((frame) => frame.parent === null).map((frame) => frame.id).reverse();
  while (rest.length) {
    const frame = model.frames.get(rest.pop());
    out.push(frame.id);
    frame.children.sort((a, b) => rank(a) - rank(b));
    for (let place = frame.children.length - 1; place >= 0; place -= 1) rest.push(frame.children[place]);
  }
  return out;
}

function nothing() {
  return { calls: 0, saved: 0, input: 0, output: 0, usd: 0, seconds: 0, frames: 0 };
}

function count(sum, call) {
  if (call.saved) {
    sum.saved += 1;
    return;
  }
  sum.calls += 1;
  sum.input += call.input_tokens;
  sum.output += call.output_tokens;
  sum.seconds += call.seconds;
  sum.usd = sum.usd === null || call.usd === null ? null : sum.usd + call.usd;
}

function add_up(model) {
  Object.assign(model, { roles: new Map(), models: new Map(), kinds: new Map() });
  const group = (groups, name, call) => {
    if (!groups.has(name)) groups.set(name, nothing());
    count(groups.get(name), call);
  };
  for (const frame of model.frames.values()) {
    Object.assign(frame, { own: nothing(), sum: nothing() });
    frame.sum.frames = 1;
  }
  for (const event of model.events) {
    if (event.e !== "call") continue;
    const frame = model.frames.get(event.frame);
    count(frame.own, event);
    group(model.roles, event.role, event);
    group(model.models, event.model, event);
    group(model.kinds, frame.kind ?? "no kind", event);
  }
  for (let place = model.order.length - 1; place >= 0; place -= 1) {
    const frame = model.frames.get(model.order[place]);
    for (const sum of [frame.own, ...frame.children.map((id) => model.frames.get(id).sum)]) {
      for (const name of ["calls", "saved", "input", "output", "seconds", "frames"]) frame.sum[name] += sum[name];
      frame.sum.usd = frame.sum.usd === null || sum.usd === null ? null : frame.sum.usd + sum.usd;
    }
  }
  model.total = nothing();
  for (const id of model.order) if (model.frames.get(id).parent === null) model.total = model.frames.get(id).sum;
  model.priced = model.total.usd !== null && model.total.usd > 0;
}

// Return the share of the run's cost that a sum is: of its dollars where they are known, of its tokens otherwise.
function share(model, sum) {
  const [part, whole] = model.priced ? [sum.usd, model.total.usd] : [sum.input + sum.output, model.total.input + model.total.output];
  return whole ? part / whole : 0;
}

// Return what took time: calls and tools, each with the pauses in it; `at` is where it began to be served.
function spans_of(model) {
  const spans = [];
  const pauses = new Map();
  let session = -1;
  model.events.forEach((event, place) => {
    if (event.e === "run") {
      session += 1;
      pauses.clear();
    }
    const since = model.sessions[session]?.begin ?? 0;
    if (event.e === "wait") {
      const key = `${event.frame} ${event.role}`;
      pauses.set(key, [...(pauses.get(key) ?? []), { begin: event.time, end: event.time + event.seconds, place }]);
    } else if (event.e === "call" || event.e === "tool") {
      const begin = event.saved ? event.time : Math.max(since, event.time - event.seconds);
      const key = `${event.frame} ${event.role}`;
      const own = event.e === "call" && !event.saved ? (pauses.get(key) ?? []) : [];
      const inside = own.filter((pause) => pause.end > begin).map((pause) => ({ begin: Math.max(begin, pause.begin), end: Math.min(event.time, pause.end) }));
      if (own.length) pauses.delete(key);
      spans.push({ frame: event.frame, tool: event.e === "tool", role: event.e === "tool" ? "tool" : event.role, name: event.e === "tool" ? event.tool : event.model,
        begin, at: begin, end: event.time, ok: event.ok !== false, saved: Boolean(event.saved), pauses: inside, place, session });
    }
  });
  spans.sort((a, b) => a.begin - b.begin || a.place - b.place);
  queue(spans, model.settings.parallel ?? Infinity);
  return spans;
}

// Find when each call came to be served, places being given in the order of asking: what it waited before is no work.
function queue(spans, places) {
  const busy = [];
  for (const span of spans) {
    if (span.tool || span.saved) continue;
    for (let place = busy.length - 1; place >= 0; place -= 1) if (busy[place] <= span.begin) busy.splice(place, 1);
    if (busy.length >= places) {
      busy.sort((a, b) => a - b);
      span.at = Math.min(span.end, busy[busy.length - places]);
    }
    busy.push(span.end);
  }
}

// Return the frames that were open after an event, those above first, with the role and attempt of each.
function stack_at(model, last) {
  const open = new Map();
  for (let place = 0; place <= last; place += 1) {
    const event = model.events[place];
    if (event.frame === undefined) continue;
    if (event.e === "done") open.delete(event.frame);
    else if (event.e === "frame" || event.e === "step") opened(open, event);
  }
  return [...open.values()].sort((a, b) => before(a.id, b.id));
}

function opened(open, event) {
  const parts = event.frame.split(".");
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const id = parts.slice(0, depth).join(".");
    if (!open.has(id)) open.set(id, { id, role: null, attempt: 1 });
  }
  if (event.e === "step") Object.assign(open.get(event.frame), { role: event.role, attempt: event.attempt });
}

function before(a, b) {
  const left = a.split(".").map(Number);
  const right = b.split(".").map(Number);
  for (let place = 0; place < Math.min(left.length, right.length); place += 1) {
    if (left[place] !== right[place]) return left[place] - right[place];
  }
  return left.length - right.length;
}
