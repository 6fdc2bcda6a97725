// Stream a wav file (16 kHz, mono, 16 bits) with ONNX Runtime in Node, without asrkit.
//
// asrkit export --model small-en-alnum --format onnx --what model --output model.onnx
// npm install onnxruntime-node
// node stream_onnx.mjs model.onnx a.wav
//
// In a browser, import onnxruntime-web and change only the last lines: get the model's bytes with
// fetch(), and the samples from an AudioContext({ sampleRate: 16000 }).

import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-node";

/** A stream of samples; any number of streams share a session. */
class Stream {
  constructor(session, about) {
    if (about.samples_before !== "0" || about.samples_after !== "0")
      throw new Error("this model needs samples before and after a stream: see docs/export.md");
    this.session = session;
    const text = (symbol) => (["<eou>", "<EOU>"].includes(symbol) ? "" : symbol); // the end of a turn
    this.symbols = ["", ...about.symbols.split("\n").map(text)]; // label 0 is the blank
    this.chunk = Number(about.chunk_length); // samples
    this.ahead = Number(about.samples_ahead ?? 0); // in the past, without a frame so far
    this.state = {};
    for (const { name, type, shape } of session.inputMetadata) {
      const dims = [1, ...shape.slice(1)];
      if (name === "past") this.past = dims[1]; // samples
      if (!name.startsWith("state_")) continue;
      const Numbers = type === "int64" ? BigInt64Array : Float32Array;
      this.state[name] = new ort.Tensor(type, new Numbers(dims.reduce((a, b) => a * b)), dims);
    }
    [this.waiting, this.label, this.pieces] = [new Float32Array(0), 0, ""];
  }

  get text() { return this.pieces.trim().replace(/\s+/g, " "); }

  /** Appends samples, a Float32Array in [-1, 1] of any length; returns the text so far. */
  async accept(samples) {
    const window = this.past + this.chunk;
    this.waiting = joined(this.waiting, samples);
    for (; this.waiting.length >= window; this.waiting = this.waiting.slice(this.chunk))
      await this.step(this.waiting.slice(0, window), this.chunk); // including the past
    return this.text;
  }

  /** Finishes the stream; returns its text. */
  async finish() {
    const window = this.past + this.chunk;
    for (let rest = this.waiting.length - this.past; rest > -this.ahead; rest -= this.chunk) {
      await this.step(joined(this.waiting, new Float32Array(window)).slice(0, window), rest);
      this.waiting = this.waiting.slice(this.chunk);
    }
    return this.text;
  }

  /** Recognises the past and a chunk; `length` real samples follow the past. */
  async step(window, length) {
    const outputs = await this.session.run({
      past: new ort.Tensor(window.slice(0, this.past), [1, this.past]),
      samples: new ort.Tensor(window.slice(this.past), [1, this.chunk]),
      lengths: new ort.Tensor("int64", [BigInt(length)], [1]),
      ...this.state,
    });
    for (const name in this.state) this.state[name] = outputs[`new_${name}`];
    for (let frame = 0; frame < outputs.frames.data[0]; frame++) {
      const size = this.symbols.length;
      const row = outputs.log_probs.data.subarray(frame * size, (frame + 1) * size);
      const label = row.indexOf(Math.max(...row));
      if (label !== this.label) this.pieces += this.symbols[label];
      this.label = label;
    }
  }
}

const joined = (a, b) => new Float32Array([...a, ...b]);

/** Returns the texts in an ONNX file's metadata, which onnxruntime's JavaScript does not expose. */
function metadata(file) {
  const text = ([, bytes]) => new TextDecoder().decode(bytes);
  const entries = [...fields(file)].filter(([number]) => number === 14); // metadata_props
  return Object.fromEntries(entries.map(([, entry]) => [...fields(entry)].map(text)));
}

/** Yields a protobuf message's fields of bytes: pairs of a number and the bytes. */
function* fields(message) {
  let at = 0;
  const varint = (value = 0, place = 1) => {
    for (; message[at] > 127; place *= 128) value += (message[at++] - 128) * place;
    return value + message[at++] * place;
  };
  while (at < message.length) {
    const [tag, length] = [varint(), varint()]; // in a field with a number, `length` is that number
    if (tag % 8 === 2) yield [tag >> 3, message.subarray(at, (at += length))];
  }
}

/** Returns the bytes of a wav file's samples; exits with a message for an unsupported file. */
function samplesOf(path) {
  const wav = readFileSync(path);
  let found = "not a wav file";
  for (let at = 12; wav.toString("latin1", 0, 4) === "RIFF" && at + 8 <= wav.length;) {
    const [name, size] = [wav.toString("latin1", at, at + 4), wav.readUInt32LE(at + 4)];
    if (name === "fmt " && at + 24 <= wav.length) {
      const bits = wav.readUInt16LE(at + 22);
      found = `${wav.readUInt32LE(at + 12)} Hz, ${wav.readUInt16LE(at + 10)} channels, ${bits} bits`;
      if (![1, 0xfffe].includes(wav.readUInt16LE(at + 8))) found += ", not whole numbers";
    }
    if (name === "data" && found === "16000 Hz, 1 channels, 16 bits")
      return wav.subarray(at + 8, at + 8 + size);
    at += 8 + size + (size % 2);
  }
  console.error(`${path}: must have 16000 Hz, 1 channel, 16 bits; it is ${found}`);
  process.exit(2);
}

const wav = samplesOf(process.argv[3]);
const model = readFileSync(process.argv[2]);
const stream = new Stream(await ort.InferenceSession.create(model), metadata(model));
for (let at = 0; at < wav.length; at += 3200) { // 100 ms, like a microphone's packets
  const length = Math.min(1600, (wav.length - at) >> 1);
  const packet = Float32Array.from({ length }, (_, i) => wav.readInt16LE(at + 2 * i) / 32768);
  process.stdout.write((await stream.accept(packet)) + "\r");
}
console.log(await stream.finish());
