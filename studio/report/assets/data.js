// The data beside the page: the index, and the chunks of long texts, unpacked when they are needed.

const KEPT = 12;
const unpacked_chunks = new Map();

async function unpack(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const whole_page = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve, { once: true });
  else resolve();
});

// Return a chunk; the last few are kept.
async function chunk_of(place) {
  await whole_page;
  const known = unpacked_chunks.get(place);
  const chunk = known ?? unpack(`chunk${place}`);
  unpacked_chunks.delete(place);
  unpacked_chunks.set(place, chunk);
  if (unpacked_chunks.size > KEPT) unpacked_chunks.delete(unpacked_chunks.keys().next().value);
  return chunk;
}

// Return an event with its long texts whole.
async function full(event) {
  if (!event.at) return event;
  const [chunk, place] = event.at;
  return { ...event, ...(await chunk_of(chunk))[place] };
}

function said(message) {
  const content = message?.content;
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content ?? message, null, 2);
  return content.map((part) => (typeof part === "string" ? part : typeof part?.text === "string" ? part.text : JSON.stringify(part, null, 2))).join("\n");
}

// Call `found` with the frames of each chunk whose texts have `needle`, and how far the search is, until `stopped`.
async function search_texts(model, needle, found, stopped) {
  await whole_page;
  const holders = new Map();
  for (const event of model.events) {
    if (!event.at || event.frame === undefined) continue;
    const [chunk, place] = event.at;
    if (!holders.has(chunk)) holders.set(chunk, []);
    holders.get(chunk).push([event.frame, place]);
  }
  let done = 0;
  for (const [chunk, events] of holders) {
    const texts = await (unpacked_chunks.get(chunk) ?? unpack(`chunk${chunk}`));
    if (stopped()) return;
    const hits = events.filter(([, place]) => has(texts[place], needle)).map(([frame]) => frame);
    done += 1;
    found(hits, done / holders.size);
    await new Promise((resolve) => setTimeout(resolve));
    if (stopped()) return;
  }
}

function has(value, needle) {
  if (typeof value === "string") return value.toLowerCase().includes(needle);
  return value !== null && typeof value === "object" && Object.values(value).some((part) => has(part, needle));
}
