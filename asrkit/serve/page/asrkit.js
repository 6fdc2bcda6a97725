// A client of asrkit serve, for browsers and Node: samples in, live and final text out. It has no
// dependencies: copy it. docs/phones.md shows its use, docs/serve.md its messages (/v1/stream).

const PATIENCE_MS = 60000; // time without a connection after which a call fails
const SILENT_MS = 20000; // time without a message that is due after which a connection is replaced
const TICK_MS = 500; // between two attempts to connect
const DUE_S = 5; // audio without acknowledgement for which a message is due
const AHEAD_S = 30; // audio without acknowledgement for which `drained` waits
const KEPT_S = 300; // audio without acknowledgement with which a call fails
const MOST_BUFFERED = 1 << 20; // bytes that may wait for the network
const MOST_VALUES = 16800; // in a message: whole samples of 1 to 8 channels
const FATAL = [1002, 1003, 1007, 1008, 1009, 1010]; // close codes that a new connection would meet again

/**
 * Begins a call: a stream of audio that the server recognises. When the connection is lost, the
 * call keeps its audio, reconnects, and goes on with the first sample that the server has not received.
 *
 * @param server URL of the server, such as https://asr.example.org
 * @param start fields of the `start` message: `sample_rate` (16000), `channels` (1), `model`, `hotwords`, …
 * @param options `token`; `onmessage`, a function that receives the server's messages, and
 *   `{type: "disconnected"}`; `WebSocket` of the package ws, for Node before 22
 * @returns `send`, `drained`, `finish`, `cancel`, and `done`: a promise of all segments (messages of
 *   type `final`). It rejects with a CallError, whose `reason` is the server's, or "unreachable", "rejected",
 *   "full", "incomplete" or "cancelled".
 */
export function begin(server, start = {}, { token, onmessage = () => {}, WebSocket = globalThis.WebSocket } = {}) {
  if (!WebSocket) throw new TypeError("this program has no WebSocket: pass the one of the package ws");
  const { sample_rate, channels } = (start = { sample_rate: 16000, channels: 1, ...start });
  const address = addressOf(server, token);
  const segments = [];
  const finals = Array(channels).fill(0); // number of segments of each channel
  const kept = []; // blocks that the server has not acknowledged, with the samples at their ends
  let next = 0; // of those, the first that this connection has not sent
  let total = 0, sent = 0, acknowledged = 0; // samples
  let socket = null, started = null, lostAt = null, heardAt, settle;
  let isOpen = false, isEnding = false, isOver = false; // open: the connection takes audio
  const done = new Promise((resolve, reject) => (settle = { resolve, reject }));
  done.catch(() => {}); // `drained` and `finish` reject, too
  const waiting = () => (total - acknowledged) / sample_rate;

  function connect() {
    const own = (socket = new WebSocket(address));
    heardAt = performance.now();
    own.onopen = () => own.send(JSON.stringify(firstMessage()));
    own.onmessage = ({ data }) => own === socket && receive(JSON.parse(data));
    own.onerror = () => {}; // onclose follows
    own.onclose = ({ code, reason }) => {
      if (own !== socket) return;
      if (FATAL.includes(code)) fail("rejected", reason || `the server closed the connection with code ${code}`);
      else lose();
    };
  }

  function firstMessage() {
    if (!started) return { ...start, type: "start", encoding: "pcm_s16le" };
    const { id, token } = started;
    return { type: "resume", id, token, finals: channels > 1 ? finals : finals[0], ack: acknowledged };
  }

  function receive(message) {
    heardAt = performance.now();
    acknowledged = Math.max(acknowledged, message.ack ?? 0);
    for (; kept[0]?.end <= acknowledged; next = Math.max(0, next - 1)) kept.shift();
    if (message.type === "error" && message.reason === "streams" && started) return lose(); // a place may become free
    if (message.type === "error") fail(message.reason, message.message);
    if (message.type === "started") {
      [started, lostAt, isOpen, sent, next] = [message, null, true, message.ack, 0];
      transmit();
    }
    if (message.type === "final") {
      segments.push(message);
      finals[message.channel ?? 0]++;
    }
    onmessage(message);
    if (message.type !== "ended") return;
    if (message.ack < total) fail("incomplete", `the server has received ${message.ack} of ${total} samples`);
    end(() => settle.resolve(segments));
  }

  // Sends what the network takes, then the end.
  function transmit() {
    while (isOpen && next < kept.length && socket.bufferedAmount < MOST_BUFFERED) {
      const { block, end } = kept[next++];
      socket.send(block.subarray(block.length - (end - sent) * channels));
      sent = end;
    }
    if (!isOpen || !isEnding || next < kept.length) return;
    socket.send(JSON.stringify({ type: "end" }));
    isOpen = false;
  }

  function tick() {
    if (!socket) return connect();
    transmit();
    if ((!isOpen || waiting() > DUE_S) && performance.now() - heardAt > SILENT_MS) lose();
  }

  function lose() {
    drop(4000);
    const isFirst = lostAt === null;
    lostAt ??= performance.now();
    if (!started) fail("unreachable", "the server cannot be reached, or rejects this program: its address, token or page");
    else if (performance.now() - lostAt > PATIENCE_MS) fail("unreachable", "the server cannot be reached for a minute");
    else if (isFirst) onmessage({ type: "disconnected" });
  }

  function fail(reason, text) {
    end(() => settle.reject(Object.assign(new Error(text), { name: "CallError", reason })));
  }

  function end(settling) {
    if (!isOver) settling();
    isOver = true;
    kept.length = 0;
    clearInterval(timer);
    drop(1000); // the code of a client that needs nothing more
  }

  function drop(code) {
    const own = socket;
    [socket, isOpen] = [null, false];
    own?.close(code);
  }

  connect();
  const timer = setInterval(tick, TICK_MS);
  return {
    done,
    /** Sends an Int16Array, or a Float32Array in [-1, 1]; channels are interleaved. After an error it does nothing. */
    send(samples) {
      const values = toInt16(samples);
      if (isEnding) throw new Error("the call has been finished: begin another one");
      if (values.length % channels) throw new RangeError(`expected samples of ${channels} channels, got ${values.length} values`);
      for (let at = 0; at < values.length && !isOver; at += MOST_VALUES) {
        const block = values.subarray(at, at + MOST_VALUES);
        total += block.length / channels;
        kept.push({ block, end: total });
        transmit();
      }
      if (waiting() > KEPT_S) fail("full", `the server has not acknowledged the last ${KEPT_S} s of audio`);
    },
    /** Waits while much audio waits for the server: for files, which are sent faster than speech. */
    async drained() {
      while (!isOver && waiting() > AHEAD_S) await new Promise((resolve) => setTimeout(resolve, 50));
      if (isOver) await done;
    },
    /** Ends the audio, and returns `done`. */
    finish() {
      isEnding = true;
      transmit();
      return done;
    },
    /** Ends the call without a result. */
    cancel: () => fail("cancelled", "the call was cancelled"),
  };
}

function addressOf(server, token) {
  const url = new URL(server);
  url.protocol = url.protocol.replace("http", "ws");
  url.pathname = url.pathname.replace(/(\/v1\/stream)?\/?$/, "/v1/stream");
  if (token) url.searchParams.set("token", token);
  return url;
}

// A copy, because the caller may write to its own array again.
function toInt16(samples) {
  if (samples instanceof Int16Array) return samples.slice();
  if (!(samples instanceof Float32Array)) throw new TypeError("samples must be an Int16Array or a Float32Array");
  return Int16Array.from(samples, (value) => Math.max(-32768, Math.min(32767, Math.round(32768 * value))));
}
