// Writes each event of `node --test` as a line of JSON, with file, line and output of each test. None of Node's own
// reporters writes all of these.
const EVENTS = ["test:start", "test:dequeue", "test:complete", "test:pass", "test:fail", "test:stderr"];

export default async function* (events) {
  for await (const { type, data } of events) {
    if (!EVENTS.includes(type)) continue;
    const error = data.details?.error;
    const cause = error?.cause ?? error;
    yield JSON.stringify({
      type: type.slice("test:".length),
      name: data.name,
      nesting: data.nesting,
      file: data.file,
      line: data.line,
      skip: data.skip ?? data.todo,
      suite: data.details?.type === "suite",
      failure: error?.failureType,
      signal: error?.signal,
      message: data.message ?? cause?.message ?? (cause && String(cause)),
      stack: cause?.stack && String(cause.stack).slice(0, 4000),
    }) + "\n";
  }
  yield JSON.stringify({ type: "end" }) + "\n";
}
