// node client.mjs ASRKIT.JS URL TOKEN < SAMPLES sends 16-bit samples at 16 kHz, and prints what came back.
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const [, , path, url, token] = process.argv;
const { begin } = await import(pathToFileURL(path));
const bytes = readFileSync(0);
const samples = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
const types = [];
const call = begin(url, {}, { token, onmessage: ({ type }) => types.push(type) });
try {
  for (let at = 0, i = 0; at < samples.length; at += 1000, i++) {
    const block = samples.slice(at, at + 1000);
    call.send(i % 2 ? block : Float32Array.from(block, (value) => value / 32768));
    block.fill(0);
    await call.drained();
    await setTimeout(10);
  }
  console.log(JSON.stringify({ types, segments: await call.finish() }));
} catch ({ name, reason, message }) {
  console.log(JSON.stringify({ types, name, reason, message }));
}
