// An MCP server in plain JavaScript, without any SDK: a notebook with tools, resources and a prompt.
//
// It speaks the revisions with a handshake and 2026-07-28, which has none: there each request says in its _meta who
// asks. Notes are kept in memory, so they are gone when the server is.

import { createInterface } from "node:readline";

const server = { name: "notebook-js", version: "1.0.0", title: "Notebook" };
const handshakes = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const modern = "2026-07-28";
const ours = "io.modelcontextprotocol/";
const capabilities = { tools: {}, resources: {}, prompts: {}, completions: {} };
const fresh = { ttlMs: 0, cacheScope: "private" }; // lists change with every note

let greeted = false; // only clients that shake hands are told, unasked, that there is a new note

const notes = new Map([
  ["tea", "Green tea wants 80 °C and two minutes."],
  ["coffee", "Coffee wants 94 °C."],
]);

// What the notebook can do.

const text = (description) => ({ type: "string", description, minLength: 1 });

const tools = {
  write_note: {
    title: "Write a note",
    description: "Keep a note under a title; one that is there already is replaced.",
    inputSchema: {
      type: "object",
      properties: { title: text("What it is about."), text: text("What to keep.") },
      required: ["title", "text"],
      additionalProperties: false,
      examples: [{ title: "mate", text: "Mate wants 75 °C." }],
    },
    outputSchema: { type: "object", properties: { notes: { type: "integer" } }, required: ["notes"] },
    annotations: { destructiveHint: false, idempotentHint: true, openWorldHint: false },
    run({ title, text }) {
      notes.set(title, text);
      if (greeted) say({ method: "notifications/resources/list_changed" });
      return { notes: notes.size };
    },
  },

  search_notes: {
    title: "Search the notes",
    description: "Find the notes with a word in them.",
    inputSchema: {
      type: "object",
      properties: { query: text("The word; capitals do not matter.") },
      required: ["query"],
      additionalProperties: false,
      examples: [{ query: "°C" }],
    },
    outputSchema: {
      type: "object",
      properties: { found: { type: "array", items: { type: "string" } } },
      required: ["found"],
    },
    annotations: { readOnlyHint: true, openWorldHint: false },
    run({ query }, progress) {
      const found = [];
      let looked = 0;
      for (const [title, text] of notes) {
        if (`${title} ${text}`.toLowerCase().includes(query.toLowerCase())) found.push(title);
        progress(++looked, notes.size, `looked at ${title}`);
      }
      return { found };
    },
  },
};

const prompts = {
  explain: {
    description: "Explain a note to somebody.",
    arguments: [
      { name: "title", description: "Of the note.", required: true },
      { name: "audience", description: "Who it is for." },
    ],
    fill: ({ title, audience = "a friend" }) => `Explain to ${audience}: ${noteOf(title)}`,
  },
};

const uriOf = (title) => `note://${encodeURIComponent(title)}`;

function noteOf(title) {
  if (!notes.has(title)) throw new Refusal(-32602, `there is no note ${title}`);
  return notes.get(title);
}

// What clients ask.

class Refusal extends Error {
  constructor(code, message, data) {
    super(message);
    Object.assign(this, { code, data });
  }
}

const definitions = (things) =>
  Object.entries(things).map(([name, { run, fill, ...definition }]) => ({ name, ...definition }));

const methods = {
  initialize: ({ protocolVersion: asked }) => {
    greeted = true;
    return {
      protocolVersion: handshakes.includes(asked) ? asked : handshakes[0],
      capabilities: { ...capabilities, resources: { listChanged: true } },
      serverInfo: server,
      instructions: "Search before you write: there may be a note already.",
    };
  },

  "server/discover": () => ({ supportedVersions: [modern], capabilities, ...fresh }),

  ping: () => ({}),

  "tools/list": () => ({ tools: definitions(tools) }),

  "tools/call": ({ name, arguments: given = {}, _meta }) => {
    if (!Object.hasOwn(tools, name)) throw new Refusal(-32602, `there is no tool ${name}`);
    const problem = misfit(tools[name].inputSchema, given);
    if (problem) return { content: [{ type: "text", text: problem }], isError: true };
    const value = tools[name].run(given, reporter(_meta?.progressToken));
    return { content: [{ type: "text", text: JSON.stringify(value) }], structuredContent: value };
  },

  "resources/list": () => ({
    resources: [...notes.keys()].map((title) => ({ uri: uriOf(title), name: title, mimeType: "text/plain" })),
  }),

  "resources/templates/list": () => ({
    resourceTemplates: [{ uriTemplate: "note://{title}", name: "note", description: "A note by its title." }],
  }),

  "resources/read": ({ uri }) => {
    const found = [...notes].find(([title]) => uriOf(title) === uri);
    if (!found) throw new Refusal(-32602, `there is no note at ${uri}`);
    return { contents: [{ uri, mimeType: "text/plain", text: found[1] }] };
  },

  "prompts/list": () => ({ prompts: definitions(prompts) }),

  "prompts/get": ({ name, arguments: given = {} }) => {
    if (!Object.hasOwn(prompts, name)) throw new Refusal(-32602, `there is no prompt ${name}`);
    return { messages: [{ role: "user", content: { type: "text", text: prompts[name].fill(given) } }] };
  },

  "completion/complete": ({ argument }) => ({
    completion: { values: [...notes.keys()].filter((title) => title.startsWith(argument.value)) },
  }),
};

/** What is wrong with the arguments of a tool; undefined when nothing is. All of them are texts. */
function misfit({ properties, required }, given) {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return "arguments must be an object";
  for (const name of required) if (!Object.hasOwn(given, name)) return `${name} is missing`;
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(properties, name)) return `there is no argument ${name}`;
    if (typeof value !== "string" || !value) return `${name} must be a text that is not empty`;
  }
}

/** A function that tells a client how far a call is, if it wants to know. */
function reporter(progressToken) {
  if (progressToken === undefined) return () => {};
  return (progress, total, message) =>
    say({ method: "notifications/progress", params: { progressToken, progress, total, message } });
}

// The conversation.

const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");

function result(method, params) {
  const meta = params._meta ?? {};
  const version = meta[`${ours}protocolVersion`];
  if (version === undefined) return run(method, params);
  if (version !== modern) {
    throw new Refusal(-32022, "unsupported protocol version", { supported: [modern], requested: version });
  }
  if (typeof meta[`${ours}clientCapabilities`] !== "object") throw new Refusal(-32602, "_meta has no capabilities");
  const holds = method.endsWith("/list") || method === "resources/read" ? fresh : {};
  return { resultType: "complete", ...run(method, params), ...holds, _meta: { [`${ours}serverInfo`]: server } };
}

function run(method, params) {
  if (!Object.hasOwn(methods, method)) throw new Refusal(-32601, `there is no method ${method}`);
  return methods[method](params);
}

function answer({ id, method, params }) {
  try {
    say({ id, result: result(method, params ?? {}) });
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    say({ id, error: { code: error.code ?? -32603, message: String(error.message), data: error.data } });
  }
}

function read(line) {
  try {
    return JSON.parse(line);
  } catch {
    console.error(`not JSON: ${line.slice(0, 80)}`);
    return null;
  }
}

// The loop ends when the client closes our stdin, and so does the program.
for await (const line of createInterface({ input: process.stdin })) {
  const message = read(line);
  if (typeof message?.method === "string" && message.id !== undefined) answer(message);
}
