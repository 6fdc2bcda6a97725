// The page: microphone or file -> /v1/stream -> text. Messages are those of asrkit/serve/dialects/messages.py.
const $ = (id) => document.getElementById(id);
const MOST_BUFFERED = 1 << 20; // bytes that may wait for the network
const KEPT_BLOCKS = 3000; // five minutes of them
const STUCK_MS = 10000; // time after which a connection that takes no audio is replaced

let call = null; // while one goes on
let files = 0; // calls and files so far, in whose order segments are shown
let segments = []; // final ones
let live = {}; // the open segment of each channel

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

const speaker = ({ channel, speaker }) => (channel === undefined ? "" : speaker || `channel ${channel}`);
const named = (segment) => (speaker(segment) ? `${speaker(segment)}: ` : "") + segment.text;

// An empty line of a segment, with the name of its speaker unless the line before has it.
function lineOf(segment, before) {
  const line = document.createElement("div");
  if (segment.channel === undefined) return line;
  line.dataset.channel = segment.channel;
  const name = document.createElement("div");
  name.className = "name";
  name.textContent = speaker(segment);
  name.hidden = before?.dataset.channel === line.dataset.channel;
  line.append(name);
  return line;
}

function show() {
  const text = $("text");
  text.replaceChildren();
  segments.sort((one, other) => one.file - other.file || one.start - other.start);
  for (const segment of segments) {
    const line = lineOf(segment, text.lastChild);
    line.dataset.end = `${segment.end.toFixed(1)} s`;
    for (const [number, word] of segment.words.entries()) {
      const span = document.createElement("span");
      span.textContent = (word.spaced === false || !number ? "" : " ") + word.text;
      span.title = `${word.start.toFixed(2)} to ${word.end.toFixed(2)} s, confidence ${word.confidence.toFixed(2)}`;
      line.append(span);
    }
    text.append(line);
  }
  for (const open of Object.values(live)) {
    if (!open.text) continue;
    const line = lineOf(open, text.lastChild);
    line.className = "live";
    const stable = document.createElement("span");
    stable.className = "stable";
    stable.textContent = open.stable;
    line.append(stable, open.text.slice(open.stable.length));
    text.append(line);
  }
  text.scrollTop = text.scrollHeight;
}

function received(message) {
  if (message.ack !== undefined) acknowledged(message.ack);
  if (message.type === "started") {
    $("model").textContent = `${message.model}, ${message.context}`;
    Object.assign(call, { id: message.id, token: message.token, open: true, tries: 0, sent: message.ack });
    call.sentAt = performance.now();
    sayState();
    transmit();
  }
  if (message.type === "final") {
    segments.push({ ...message, file: call.file });
    call.finals[message.channel || 0]++;
    delete live[message.channel || 0];
  }
  if (message.type === "partial") {
    live[message.channel || 0] = message;
    $("delay").textContent = `${Math.round(performance.now() - call.sentAt)} ms`;
  }
  if (message.type === "error") say(message.message, true);
  if (message.type === "ended") {
    say(`Done.${lost()}`, call.lost > 0);
    call.socket.close(1000); // all messages have arrived
    finish();
  }
  if (message.type === "final" || message.type === "partial") show();
}

// Forgets blocks that the server has acknowledged.
function acknowledged(ack) {
  const size = call.silence.length / call.channels;
  call.ack = ack;
  for (; call.blocks.length && call.first + size <= ack; call.first += size) call.blocks.shift();
}

// Keeps a block until the server has acknowledged it, at most five minutes.
function keep(block) {
  call.blocks.push(block);
  const old = call.blocks.length - 1 - KEPT_BLOCKS;
  if (old >= 0) call.blocks[old] = null;
}

function sayState() {
  const listening = call.channels < call.wanted ? "Listening. The microphone has one channel." : "Listening.";
  say((call.ending ? "Finishing…" : listening) + lost(), call.lost > 0);
}

const lost = () => (call.lost ? ` ${call.lost.toFixed(1)} s of audio were lost: the server was away for too long.` : "");

// The next samples to send. Silence stands for audio that is no longer kept, so that times stay right.
function unsent() {
  const { blocks, silence, channels } = call;
  const after = (call.sent - call.first) * channels;
  const number = Math.floor(after / silence.length);
  if (blocks[number] === null) {
    blocks[number] = silence;
    call.lost += silence.length / channels / call.rate;
    sayState();
  }
  return blocks[number]?.subarray(after % silence.length);
}

// Sends what the network takes, then the end.
function transmit() {
  const { socket, open, channels } = call;
  if (!open || socket.readyState !== WebSocket.OPEN) return;
  let block;
  while ((block = unsent()) && socket.bufferedAmount < MOST_BUFFERED) {
    socket.send(block);
    call.sent += block.length / channels;
    call.sentAt = performance.now();
  }
  if (!block) return call.ending && socket.send(JSON.stringify({ type: "end" }));
  if (performance.now() - call.sentAt > STUCK_MS) socket.close(4000, "too slow"); // and resume
  else if (call.ending) setTimeout(() => call && transmit(), 100);
}

const token = new URLSearchParams(location.search).get("token");
const headers = token ? { Authorization: `Bearer ${token}` } : {};

function hotwords() {
  return $("hotwords").value.split("\n").map((line) => line.trim()).filter(Boolean);
}

async function listModels() {
  const response = await fetch("v1/models", { headers });
  const body = await response.json();
  if (!response.ok) return say(body.error.message, true);
  $("models").replaceChildren(...body.data.map(({ id }) => new Option(id)));
  $("choice").hidden = body.data.length < 2;
  $("models").onchange = () => showWords(body.data[$("models").selectedIndex]);
  $("models").onchange();
}

// The words of a model that knows no others: whatever else is said becomes some of them.
function showWords({ id, words }) {
  $("vocabulary").hidden = !words;
  if (!words) return;
  $("vocabulary").firstElementChild.textContent = `${id} knows ${words.length} words and no others.`;
  $("vocabulary").lastElementChild.textContent = words.join(" ");
}

function connect() {
  const url = new URL("v1/stream", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  if (token) url.searchParams.set("token", token);
  const socket = (call.socket = new WebSocket(url));
  socket.onopen = () => {
    const { id, token, channels, ack, rate: sample_rate } = call;
    const finals = channels > 1 ? call.finals : call.finals[0];
    const model = $("models").value || undefined;
    const start = { type: "start", sample_rate, channels, hotwords: hotwords(), model };
    socket.send(JSON.stringify(id ? { type: "resume", id, token, finals, ack } : start));
  };
  socket.onmessage = ({ data }) => received(JSON.parse(data));
  socket.onclose = (event) => {
    if (!call || socket !== call.socket) return;
    call.open = false;
    // 1008 and 1013 are rejections; without an id no call can be resumed.
    if (event.code === 1000 || event.code === 1008 || event.code === 1013 || !call.id || call.tries > 30) {
      if (event.code !== 1000) say(event.reason || "The server cannot be reached, or rejects this page.", true);
      return finish();
    }
    call.tries++;
    say("The connection was lost; reconnecting…", true);
    setTimeout(() => call && connect(), 1000);
  };
}

function finish() {
  if (!call) return;
  call.stop();
  call = null;
  $("models").disabled = $("split").disabled = false;
  $("talk").textContent = "Start";
  $("talk").setAttribute("aria-pressed", "false");
  $("level").value = 0;
}

function whyNoMicrophone(error) {
  return {
    NotAllowedError: "The microphone is not allowed: allow it for this page in the browser's settings.",
    NotFoundError: "No microphone was found: connect one.",
    NotReadableError: "The microphone is in use by another program.",
  }[error.name] || String(error.message || error);
}

async function talk() {
  if (call) {
    call.stop();
    call.ending = true;
    transmit();
    return sayState();
  }
  if (!navigator.mediaDevices) return say("Browsers allow the microphone only for https pages and for localhost.", true);
  let stream, context;
  const stop = () => {
    if (stream) for (const track of stream.getTracks()) track.stop();
    if (context && context.state !== "closed") context.close();
  };
  const wanted = $("split").checked ? 2 : 1;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: wanted, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    context = new AudioContext(); // of the device's rate: another one throws in Firefox
    await context.audioWorklet.addModule("worklet.js");
    const channels = Math.min(wanted, stream.getAudioTracks()[0].getSettings().channelCount || 1);
    const finals = Array(channels).fill(0);
    const rate = context.sampleRate;
    const silence = new Int16Array(channels * Math.round(rate / 10)); // as long as a block of worklet.js
    const audio = { rate, channels, silence, blocks: [], first: 0, sent: 0, ack: 0, lost: 0 };
    call = { ...audio, wanted, finals, file: ++files, tries: 0, stop };
    connect();
    const node = new AudioWorkletNode(context, "blocks", {
      numberOfOutputs: 0, channelCount: channels, channelCountMode: "explicit", processorOptions: { channels },
    });
    node.port.onmessage = ({ data }) => {
      if (!call || call.ending) return;
      const samples = new Int16Array(data);
      $("level").value = Math.sqrt(samples.reduce((sum, each) => sum + each * each, 0) / samples.length) / 8000;
      keep(samples);
      transmit();
    };
    context.createMediaStreamSource(stream).connect(node);
    $("models").disabled = $("split").disabled = true;
    $("talk").textContent = "Stop";
    $("talk").setAttribute("aria-pressed", "true");
  } catch (error) {
    stop();
    finish();
    say(whyNoMicrophone(error), true);
  }
}

async function sendFile(file) {
  if (call) return say("Stop the microphone first.", true);
  say(`Recognising ${file.name}…`);
  const form = new FormData();
  form.set("file", file);
  form.set("response_format", "verbose_json");
  form.append("timestamp_granularities[]", "word");
  form.append("timestamp_granularities[]", "segment");
  if ($("models").value) form.set("model", $("models").value);
  if ($("split").checked) form.set("channels", "split");
  if (hotwords().length) form.set("prompt", hotwords().join(","));
  try {
    const response = await fetch("v1/audio/transcriptions", { method: "POST", body: form, headers });
    const body = await response.json();
    if (!response.ok) return say(body.error.message, true);
    files++;
    for (const segment of body.segments) {
      const { start, end, channel } = segment;
      if (!segment.text) continue;
      const words = body.words.filter((word) => word.start >= start && word.end <= end && word.channel === channel);
      segments.push({ ...segment, file: files, words: words.map((word) => ({ ...word, text: word.word, confidence: 1 })) });
    }
    show();
    const warning = response.headers.get("X-Asrkit-Warning");
    say(`${file.name}: ${body.duration.toFixed(1)} s.${warning ? ` Note: ${warning}.` : ""}`);
  } catch (error) {
    say(String(error), true);
  }
}

function stamp(seconds) {
  const ms = Math.round(seconds * 1000);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${two(ms / 3600000)}:${two((ms / 60000) % 60)}:${two((ms / 1000) % 60)},${String(ms % 1000).padStart(3, "0")}`;
}

const texts = {
  txt: () => segments.map((segment) => named(segment) + "\n").join(""),
  srt: () =>
    segments.map((each, i) => `${i + 1}\n${stamp(each.start)} --> ${stamp(each.end)}\n${named(each)}\n\n`).join(""),
};

function download(kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([texts[kind]()], { type: "text/plain" }));
  link.download = `asrkit.${kind}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

listModels().catch((error) => say(String(error), true));
$("talk").onclick = talk;
$("file").onchange = ({ target }) => target.files[0] && sendFile(target.files[0]);
$("txt").onclick = () => download("txt");
$("srt").onclick = () => download("srt");
$("copy").onclick = async () => {
  await navigator.clipboard.writeText(texts.txt());
  say("Copied.");
};
$("clear").onclick = () => {
  segments = [];
  live = {};
  show();
};
document.body.ondragover = (event) => {
  event.preventDefault();
  $("text").classList.add("over");
};
document.body.ondragleave = () => $("text").classList.remove("over");
document.body.ondrop = (event) => {
  event.preventDefault();
  $("text").classList.remove("over");
  if (event.dataTransfer.files[0]) sendFile(event.dataTransfer.files[0]);
};
