// One frame: its task and answer, its plan, and all that happened to it, in order.

async function frame_view(model, id) {
  const frame = model.frames.get(id);
  if (!frame) return h("div", {}, h("h2", { text: "No such frame" }), h("p", { text: `This run has no frame ${line(id, 60)}.` }));
  const named = frame.named === undefined ? null : await full(model.events[frame.named]);
  const answered = frame.answer === null ? null : await full(model.events[frame.answer]);
  const planned = frame.plan === null ? null : await full(model.events[frame.plan]);
  const answers = frame.seen.filter((place) => model.events[place].e === "answer").length;
  return h("article", { class: "frame" },
    crumbs(model, frame),
    h("h2", {}, mark(frame.state), " ", h("span", { class: "id", text: id }), frame.kind ? h("span", { class: `kindtag k-${line(frame.kind, 12)}`, text: line(frame.kind, 20) }) : null,
      h("span", { class: `badge ${frame.state}`, text: state_name(model, frame.state) }), frame.limit ? h("span", { class: "badge limited", text: `limit ${frame.limit}` }) : null),
    block(named?.task ?? frame.task, { kind: "text tasktext" }),
    facts(model, frame),
    answered ? h("section", {}, h("h3", { text: `Answer${answers > 1 ? ` (the last of ${answers})` : ""}` }), block(answered.answer, { model, kind: "text answer" })) : null,
    planned ? h("section", {}, h("h3", { text: `Plan: ${plural(planned.subtasks.length, "subtask")}` }), planned.subtasks.length ? plan_graph(model, frame, planned.subtasks) : h("p", { class: "none", text: "No subtask: the task was solved directly." })) : null,
    h("section", {}, h("h3", { text: "What happened" }), history_of(model, frame)));
}

function crumbs(model, frame) {
  const ids = [];
  for (let at = frame; at; at = model.frames.get(at.parent)) ids.unshift(at.id);
  const parts = ids.slice(0, -1).map((id) => h("li", {}, frame_link(id, model), " ", h("span", { class: "crumb", text: line(model.frames.get(id).task, 28) })));
  return ids.length > 1 ? h("nav", { "aria-label": "Frames above" }, h("ol", { class: "crumbs" }, ...parts)) : null;
}

function facts(model, frame) {
  const seconds = frame.made !== null && frame.ended !== null ? frame.ended - frame.made : null;
  const both = (sum) => `${plural(sum.calls, "call")} · ${short(sum.input)} tokens in, ${short(sum.output)} out · ${money(sum.usd)}`;
  const rows = [["took", seconds === null ? "not ended" : duration(seconds)], ["attempts", number(frame.attempts)], ["itself", both(frame.own)]];
  if (frame.children.length) rows.push([`with ${plural(frame.sum.frames - 1, "frame")} below`, both(frame.sum)]);
  rows.push(["share of the run", `${(share(model, frame.sum) * 100).toFixed(1)} % of the ${model.priced ? "cost" : "tokens"}`]);
  if (frame.sum.saved) rows.push(["calls saved", number(frame.sum.saved)]);
  return pairs(rows);
}

function pairs(rows) {
  return h("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => h("div", {}, h("dt", { text: name }), h("dd", {}, value instanceof Node ? value : marked(value)))));
}

function history_of(model, frame) {
  const list = h("ol", { class: "history" });
  const show = (from) => {
    const until = Math.min(frame.seen.length, from + 400);
    for (let place = from; place < until; place += 1) {
      const item = happening(model, model.events[frame.seen[place]]);
      if (item) list.append(h("li", { class: `h-${model.events[frame.seen[place]].e}` }, item));
    }
    if (until === frame.seen.length) return;
    const more = h("button", { type: "button", class: "more", text: `Show more of ${number(frame.seen.length - until)} events` });
    const item = h("li", {}, more);
    more.addEventListener("click", () => (item.remove(), show(until)));
    list.append(item);
  };
  show(0);
  return list;
}

// Return what is shown of an event in its frame's history; null where another event says it.
function happening(model, event) {
  switch (event.e) {
    case "step": return h("div", { class: "step" }, h("span", { class: `role r-${line(event.role, 12)}`, text: event.role }), event.attempt > 1 ? h("span", { class: "tries", text: `attempt ${event.attempt}` }) : null, when(model, event));
    case "call": return folded(event, "call", [h("span", { class: "what", text: event.saved ? "saved reply" : "call" }), h("span", { class: "model", text: line(event.model, 60) }),
      h("span", { class: "dim", text: `${short(event.input_tokens)} → ${short(event.output_tokens)} tokens${event.estimated ? " (estimated)" : ""} · ${event.saved ? "no cost" : `${duration(event.seconds)}${event.usd === null ? "" : ` · ${money(event.usd)}`}`}` })], call_body);
    case "tool": return folded(event, "tool", [h("span", { class: `what ${event.ok ? "" : "bad"}`, text: event.ok ? "tool" : "tool failed" }), h("span", { class: "model", text: line(event.tool, 60) }), h("span", { class: "dim", text: `${duration(event.seconds)} · ${line(event.arguments, 80)}` })], tool_body);
    case "cell": return folded(event, "cell", [h("span", { class: `what ${event.error ? "bad" : ""}`, text: event.error ? "code failed" : "code" }), h("span", { class: "dim", text: `${event.launches.length ? `waits for ${plural(event.launches.length, "subagent")} · ` : ""}${line(event.error ?? event.code, 80)}` })], cell_body);
    case "findings": return folded(event, "findings", [h("span", { class: "what", text: "findings" }), h("span", { class: "dim", text: plural(event.files.length, "file") })], (whole) => [block(JSON.stringify({ files: whole.files, observations: whole.observations, left_out: whole.left_out }, null, 2), { kind: "text code" })]);
    case "assigned": return noted("", "assigned", event, null, `${line(event.agent, 40)} (${event.score.toFixed(2)})`);
    case "answer": return folded(event, "answer", [h("span", { class: "what", text: "answer" }), h("span", { class: "dim", text: line(event.answer, 90) || "(empty)" })], (whole) => [block(whole.answer, { model })]);
    case "verdict": return noted(event.accepted ? "good" : "bad", event.accepted ? "accepted" : "rejected", event, "feedback");
    case "plan": return noted("", "plan", event, null, plural(event.subtasks.length, "subtask"));
    case "plan_refused": return noted("bad", "plan refused", event, "reason");
    case "approval": return noted(event.decision === "rejected" ? "bad" : "wait", "approval", event, null, event.decision === "asked" ? "a person is asked about the plan" : `${event.decision} by a person`);
    case "wait": return noted("wait", `pause of ${duration(event.seconds)}`, event, "reason");
    case "limit": return noted("limit", `limit ${line(event.limit, 30)}`, event, "reason");
    case "done": return noted(event.success ? "good" : "bad", event.success ? "done" : "failed", event, null, "");
    default: return null;
  }
}

function when(model, event) {
  return h("a", { class: "when", href: `#view=steps&event=${event.id}`, title: `event ${event.id}: the stack then`, text: `+${duration(axis_of(model).at(event.time))}` });
}

function noted(klass, title, event, name, text = null) {
  const head = h("span", { class: `what ${klass}`, text: title });
  const rest = h("span", { class: "said" });
  const put = (whole) => rest.replaceChildren(marked(text ?? whole[name]));
  put(event);
  if (event.at && name) full(event).then(put);
  return h("div", { class: "note" }, head, rest);
}

// Return a summary that unfolds into what `body` makes of the whole event, once it is opened.
function folded(event, klass, summary, body) {
  const details = h("details", { class: `fold ${klass}`, data: { id: event.id } }, h("summary", {}, ...summary));
  const fill = async () => {
    if (!details.open || details.dataset.filled) return;
    details.dataset.filled = "yes";
    details.append(h("div", { class: "body" }, ...body(await full(event))));
  };
  details.addEventListener("toggle", fill);
  return details;
}

function call_body(call) {
  const messages = (call.messages ?? []).map((message) => {
    const { role, content, ...rest } = message ?? {};
    const extra = Object.entries(rest).filter(([, value]) => value !== null && (value.length ?? 1));
    return h("div", { class: "message" }, h("h4", { text: line(role ?? "message", 30) }), block(said({ content })), extra.length ? block(JSON.stringify(Object.fromEntries(extra), null, 2), { kind: "text code" }) : null);
  });
  if (!messages.length) messages.push(h("p", { class: "none", text: "The journal keeps no prompt of this call." }));
  const reply = call.reply === undefined ? h("p", { class: "none", text: "The journal keeps no reply of this call." }) : block(call.reply);
  return [...messages, h("div", { class: "message reply" }, h("h4", { text: "reply" }), reply)];
}

function cell_body(cell) {
  const part = (title, ...of) => h("div", { class: "message" }, h("h4", { text: title }), ...of);
  const launched = cell.launches.map((launch) => h("p", {}, h("a", { href: `#frame=${launch.frame}`, text: launch.frame }), ` ${line(launch.goal, 200)}`));
  return [part("code", block(cell.code, { kind: "text code" })), ...(cell.output ? [part("output", block(cell.output, { kind: "text code" }))] : []),
    ...(cell.error ? [part("error", block(cell.error, { kind: "text code" }))] : []), ...(launched.length ? [part("subagents", ...launched)] : [])];
}

function tool_body(used) {
  const output = used.output === undefined ? h("p", { class: "none", text: "The journal keeps no output of this use." }) : block(used.output, { kind: "text code" });
  return [h("div", { class: "message" }, h("h4", { text: "arguments" }), block(used.arguments, { kind: "text code" })), h("div", { class: "message reply" }, h("h4", { text: "output" }), output)];
}
