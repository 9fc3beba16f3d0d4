// The official TypeScript clients, asked to do everything a test wants to see. Prints one JSON object: what they saw.
//
//   node client.mjs PEERS GENERATION ERA COMMAND [ARGUMENT…]     over stdio
//   node client.mjs PEERS GENERATION ERA URL TOKEN               over streamable HTTP
//
// PEERS is the folder with node_modules, GENERATION is 1 (sdk) or 2 (client), ERA handshake or modern.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [peers, generation, era, target, ...rest] = process.argv.slice(2);
const require = createRequire(`${peers}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] =
  generation === "1"
    ? await Promise.all([
        load("@modelcontextprotocol/sdk/client/index.js"),
        load("@modelcontextprotocol/sdk/client/stdio.js"),
        load("@modelcontextprotocol/sdk/client/streamableHttp.js"),
      ])
    : await Promise.all([
        load("@modelcontextprotocol/client"),
        load("@modelcontextprotocol/client/stdio"),
        load("@modelcontextprotocol/client"),
      ]);

const options = era === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
const client = new Client({ name: "peer", version: "1.0.0" }, options);
const transport = /^https?:/.test(target)
  ? new StreamableHTTPClientTransport(new URL(target), {
      requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } },
    })
  : new StdioClientTransport({ command: target, args: rest, env: process.env, stderr: "inherit" });

const seen = {};
await client.connect(transport);
seen.server = client.getServerVersion();

const { tools } = await client.listTools();
seen.tools = tools;
const named = (end) => tools.find((tool) => tool.name.endsWith(end)).name;
const call = (end, args, more) => client.callTool({ name: named(end), arguments: args }, ...more);
// The first generation takes a schema for the result before its options.
const extras = (more) => (generation === "1" ? [undefined, more] : [more]);

seen.call = await call("shout", { text: "tea" }, extras({}));
seen.error = await call("fail", { text: "no milk" }, extras({})).catch((error) => ({ thrown: error.code }));
seen.unknown = await client.callTool({ name: "nobody_has_this", arguments: {} }).catch((error) => ({ thrown: error.code }));
seen.refused = await call("shout", { text: 7 }, extras({})).catch((error) => ({ thrown: error.code }));

seen.progress = [];
seen.counted = await call("count", { to: 3 }, extras({ onprogress: (item) => seen.progress.push(item.message) }));

const cancelling = new AbortController();
const waiting = call(
  "wait",
  {},
  extras({ signal: cancelling.signal, onprogress: () => cancelling.abort("enough") }),
).catch(() => "cancelled");
seen.cancelled = await waiting;
for (;;) {
  const told = await call("waited", {}, extras({}));
  if (told.content[0].text !== "0") {
    seen.waited = told.content[0].text;
    break;
  }
}

const large = await call("large", { size: 3_000_000 }, extras({}));
seen.large = large.content[0].text.length;

await client.close();
process.stdout.write(JSON.stringify(seen) + "\n");
