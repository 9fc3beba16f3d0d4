// A nexo plugin in plain JavaScript: one JSON-RPC message per line, on stdin and stdout. No SDK, no dependencies.

import { createInterface } from "node:readline";

class Refusal extends Error {
  constructor(code, message, data) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

const text = (example) => ({
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
  examples: [{ text: example }],
});

const tools = {
  text_tools_count: {
    description: "Characters, words and lines of a text.",
    input_schema: text("one two\nthree"),
    run: (given) => ({ characters: [...given].length, words: words(given).length, lines: given.split("\n").length }),
  },
  text_tools_slug: {
    description: "A text as it would stand in a URL.",
    input_schema: text("Crème brûlée, twice!"),
    run: (given) => ({ slug: words(given).join("-") }),
  },
};

function words(given) {
  return given.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

const methods = {
  initialize: () => ({
    manifest: { plugin: { id: "text_tools", version: "1.0.0" } },
    server_version: "text_tools-1.0.0",
    tools: Object.entries(tools).map(([name, { description, input_schema }]) => ({ name, description, input_schema })),
  }),

  "tool.invoke": ({ tool_name, args }) => {
    if (!Object.hasOwn(tools, tool_name)) throw new Refusal(-33401, `there is no tool ${tool_name}`);
    if (typeof args?.text !== "string") {
      throw new Refusal(-33402, "text must be a string", { details: { field: "text", got: typeof args?.text } });
    }
    return tools[tool_name].run(args.text);
  },

  "hook.on_hook": ({ hook_name, event }) => {
    if (hook_name !== "before_message" || typeof event?.body !== "string") return {};
    const hidden = event.body.replace(/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g, "[e-mail]");
    if (hidden === event.body) return {};
    return { abort: false, decision: "transform", transformed_body: hidden, reason: "e-mail addresses are hidden" };
  },

  shutdown: () => ({ ok: true }),
};

function answer({ id, method, params }) {
  try {
    if (!Object.hasOwn(methods, method)) throw new Refusal(-32601, `there is no method ${method}`);
    return { jsonrpc: "2.0", id, result: methods[method](params ?? {}) };
  } catch ({ code, message, data }) {
    return { jsonrpc: "2.0", id, error: { code: code ?? -32603, message, data } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let message = null;
  try {
    message = JSON.parse(line);
  } catch {
    if (line.trim()) console.error(`not JSON: ${line.slice(0, 80)}`);
  }
  if (typeof message?.method !== "string") continue; // a reply, or nothing at all
  if (message.id === undefined) continue; // a notification is never answered
  process.stdout.write(JSON.stringify(answer(message)) + "\n", () => {
    if (message.method === "shutdown") process.exit(0);
  });
}
