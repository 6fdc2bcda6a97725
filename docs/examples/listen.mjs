// A wav file at 16 kHz, 1 channel, 16 bits, from Node 22: node listen.mjs http://127.0.0.1:8000 a.wav
// with asrkit/serve/page/asrkit.js beside this file. Live text first, then each segment with its start.
import { readFileSync } from "node:fs";
import { begin } from "./asrkit.js";

const [, , server, wav] = process.argv;
const samples = new Int16Array(new Uint8Array(readFileSync(wav).subarray(44)).buffer);
const onmessage = ({ type, text }) => type === "partial" && process.stdout.write(`\r${text}`);
const call = begin(server, { sample_rate: 16000 }, { onmessage, token: process.env.ASRKIT_TOKEN });
for (let at = 0; at < samples.length; at += 1600) {
  call.send(samples.subarray(at, at + 1600));
  await call.drained(); // files are faster than speech
}
for (const { start, text } of await call.finish()) console.log(`\r${start} s: ${text}`);
