// Runs the page's script without a browser: its elements, its microphone, its clock and the server are stand-ins.
// node page.mjs PATH/TO/page.js SCENARIO prints what the server got and what the page said.
import { pathToFileURL } from "node:url";

const [, , path, scenario] = process.argv;
const BLOCK = 4800; // samples of 100 ms; those of block n (from 1) are all n
const elements = {};
const sockets = [];
let now = 0;
let tick;
let microphone;

const element = () => ({
  classList: { toggle() {} },
  dataset: {},
  value: "",
  selectedIndex: 0,
  children: [],
  append(...more) {
    this.children.push(...more);
  },
  replaceChildren() {
    this.children = [];
  },
  setAttribute() {},
});

class Socket {
  constructor() {
    Object.assign(this, { readyState: 1, bufferedAmount: 0, fills: false, audio: [], texts: [], first: 0 });
    sockets.push(this);
  }
  send(data) {
    if (typeof data === "string") return this.texts.push(JSON.parse(data));
    if (this.texts.some(({ type }) => type === "end")) throw new Error("audio after the end");
    this.audio.push(...data);
    if (this.fills) this.bufferedAmount += data.byteLength;
  }
  close(code) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose({ code, reason: "" });
  }
  answer(message) {
    this.onmessage({ data: JSON.stringify({ words: [], text: "", stable: "", ...message }) });
  }
  start(ack) {
    this.first = ack;
    this.onopen();
    this.answer({ type: "started", id: "i", token: "t", model: "m", context: "c", ack });
  }
}

// A file's text as the server answers; a postprocess has added the last word, which takes no time.
const word = (word, start, end) => ({ word, start, end });
const answers = {
  "v1/models": { data: [{ id: "m", words: null }] },
  "v1/audio/transcriptions": {
    duration: 4,
    segments: [{ text: "yes please", start: 0.5, end: 1 }, { text: "no", start: 2, end: 3 }],
    words: [word("yes", 0.5, 1), word("please", 1, 1), word("no", 2, 3)],
  },
};

Object.assign(globalThis, {
  document: { getElementById: (id) => (elements[id] ??= element()), createElement: element, body: element() },
  location: new URL("http://127.0.0.1/"),
  fetch: async (path) => ({ ok: true, headers: new Headers(), json: async () => answers[path] }),
  Option: class {},
  WebSocket: Socket,
  AudioContext: class {
    sampleRate = 10 * BLOCK;
    audioWorklet = { addModule: async () => {} };
    createMediaStreamSource = () => ({ connect() {} });
    close() {}
  },
  AudioWorkletNode: class {
    constructor() {
      this.port = microphone = {};
    }
  },
  setInterval: (run) => (tick = run),
  clearInterval: () => (tick = () => {}),
});
performance.now = () => now;
const track = { stop() {}, getSettings: () => ({ channelCount: 1 }) };
const stream = { getTracks: () => [track], getAudioTracks: () => [track] };
Object.defineProperty(globalThis, "navigator", { value: { mediaDevices: { getUserMedia: async () => stream } } });

let spoken = 0;
function speak(blocks) {
  for (let i = 0; i < blocks; i++, now += 100) microphone.onmessage({ data: new Float32Array(BLOCK).fill(++spoken / 32768) });
}
const newest = () => sockets.at(-1);
const click = () => elements.talk.onclick();

await import(pathToFileURL(path));
await click();
newest().start(0);
speak(10);

const scenarios = {
  // The connection is lost for 70 s; the server has half of a block that it has not acknowledged before.
  lost() {
    newest().answer({ type: "partial", ack: 4 * BLOCK });
    newest().close(1006);
    speak(700);
    tick();
    newest().start(4.5 * BLOCK);
  },
  // For more than a client keeps.
  long() {
    newest().close(1006);
    speak(4000);
  },
  // No attempt to connect succeeds.
  gone() {
    for (let i = 0; i < 130 && newest().readyState === 1; i++, now += 500) {
      newest().close(1006);
      tick();
    }
  },
  // The network takes nothing for 5 s.
  slow() {
    newest().bufferedAmount = 2 ** 21;
    speak(50);
    newest().bufferedAmount = 0;
    speak(1);
  },
  // The network takes nothing at all.
  stuck() {
    newest().fills = true;
    speak(250);
    tick();
    tick();
    newest().start(10 * BLOCK);
  },
  // The server has no place when the client comes back, and then has.
  full() {
    newest().close(1006);
    tick();
    newest().onopen();
    newest().answer({ type: "error", reason: "streams", message: "full" });
    tick();
    newest().start(10 * BLOCK);
  },
  rejected() {
    newest().answer({ type: "error", reason: "length", message: "the call is too long" });
    speak(10);
  },
  // The end follows the audio that waits for the network.
  end() {
    newest().bufferedAmount = 2 ** 21;
    speak(20);
    click();
    const early = newest().texts.length;
    newest().bufferedAmount = 0;
    tick();
    newest().texts.push({ early });
  },
  // A file after the microphone.
  async file() {
    await click();
    newest().answer({ type: "ended", ack: 10 * BLOCK });
    await new Promise(setImmediate);
    await elements.file.onchange({ target: { files: [new File([], "a.wav")] } });
  },
  // Segments acknowledge, too.
  final() {
    newest().answer({ type: "final", start: 0, end: 1, ack: 10 * BLOCK });
    newest().close(1006);
    tick();
    newest().start(10 * BLOCK);
  },
};
await scenarios[scenario]();
await new Promise(setImmediate);
const { audio, first, texts } = newest();
const blocks = audio.filter((_, i) => (first + i) % BLOCK === 0 || i === 0);
const uneven = audio.some((each, i) => i && each !== audio[i - 1] && (first + i) % BLOCK);
const status = elements.status.textContent;
const lines = elements.text?.children.map((line) => line.children.map((span) => span.textContent).join(""));
console.log(JSON.stringify({ first: first / BLOCK, blocks, uneven, texts, sockets: sockets.length, status, lines }));
