// The critical path: the longest chain of work in which each had to wait for the one before it, by the plans.

function critical(model) {
  const spans = new Map();
  for (const span of model.spans) {
    if (!spans.has(span.frame)) spans.set(span.frame, []);
    spans.get(span.frame).push(span);
  }
  const own = new Map(model.order.map((id) => [id, union((spans.get(id) ?? []).map((span) => [span.at, span.end]))]));
  const least = new Map();
  const chains = new Map();
  for (let place = model.order.length - 1; place >= 0; place -= 1) {
    const frame = model.frames.get(model.order[place]);
    const [chain, seconds] = longest(model, frame, least);
    chains.set(frame.id, chain);
    least.set(frame.id, own.get(frame.id) + seconds);
  }
  const path = [];
  const rest = model.order.filter((id) => model.frames.get(id).parent === null).reverse();
  while (rest.length) {
    const id = rest.pop();
    path.push({ id, own: own.get(id), all: least.get(id) });
    rest.push(...chains.get(id).slice().reverse());
  }
  const on = new Set(path.map((part) => part.id));
  const seconds = path.reduce((sum, part) => sum + part.own, 0);
  const paused = model.spans.filter((span) => on.has(span.frame)).reduce((sum, span) => sum + paused_in(span), 0);
  return { path, on, seconds, paused };
}

function paused_in(span) {
  return union(span.pauses.map((pause) => [Math.max(span.at, pause.begin), pause.end]));
}

// Return the length of what intervals cover together.
function union(intervals) {
  let [sum, until] = [0, -Infinity];
  for (const [begin, end] of intervals.sort((a, b) => a[0] - b[0])) {
    if (end > until) sum += end - Math.max(begin, until);
    until = Math.max(until, end);
  }
  return sum;
}

// Return the longest chain of a frame's children, each built on the one before it, and how long it takes.
function longest(model, frame, least) {
  if (!frame.children.length) return [[], 0];
  const plan = frame.plan === null ? [] : model.events[frame.plan].subtasks;
  const one_by_one = model.settings.profile === "classic";
  const ids = new Map(plan.map((subtask, place) => [subtask.id, `${frame.id}.${place}`]));
  const ends = new Map();
  const behind = new Map();
  const end_of = (id, above) => {
    if (ends.has(id) || above.has(id)) return ends.get(id) ?? 0;
    const place = frame.children.indexOf(id);
    const subtask = plan[Number(id.slice(frame.id.length + 1))];
    const needs = one_by_one ? frame.children.slice(Math.max(0, place - 1), place) : (subtask?.depends_on ?? []).map((name) => ids.get(name));
    let [last, until] = [null, 0];
    for (const need of needs) {
      const end = need && least.has(need) ? end_of(need, new Set([...above, id])) : 0;
      if (end > until) [last, until] = [need, end];
    }
    ends.set(id, until + least.get(id));
    behind.set(id, last);
    return ends.get(id);
  };
  for (const id of frame.children) end_of(id, new Set());
  let at = frame.children.reduce((best, id) => (ends.get(id) > ends.get(best) ? id : best));
  const seconds = ends.get(at);
  const chain = [];
  while (at) {
    chain.unshift(at);
    at = behind.get(at);
  }
  return [chain, seconds];
}
