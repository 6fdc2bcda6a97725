// The page: microphone or file -> text. asrkit.js is its client of /v1/stream.
import { begin } from "./asrkit.js";

const $ = (id) => document.getElementById(id);

let call = null; // while one goes on
let files = 0; // calls and files so far, in whose order segments are shown
let segments = []; // final ones
let live = {}; // the open segment of each channel

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

const speaker = ({ channel }) => (channel === undefined ? "" : `channel ${channel}`);
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
  if (message.type === "started") {
    $("model").textContent = `${message.model}, ${message.context}`;
    sayState();
  }
  if (message.type === "disconnected") say("The connection was lost; reconnecting…", true);
  if (message.type === "final") {
    segments.push({ ...message, file: call.file });
    delete live[message.channel || 0];
  }
  if (message.type === "partial") {
    live[message.channel || 0] = message;
    $("delay").textContent = `${Math.round(performance.now() - call.sentAt)} ms`;
  }
  if (message.type === "final" || message.type === "partial") show();
}

function sayState() {
  const listening = call.channels < call.wanted ? "Listening. The microphone has one channel." : "Listening.";
  say(call.isEnding ? "Finishing…" : listening);
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
    call.isEnding = true;
    call.client.finish();
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
    const node = new AudioWorkletNode(context, "blocks", {
      numberOfOutputs: 0, channelCount: channels, channelCountMode: "explicit", processorOptions: { channels },
    });
    const model = $("models").value || undefined;
    const start = { sample_rate: context.sampleRate, channels, hotwords: hotwords(), model };
    const client = begin(new URL(".", location.href), start, { token, onmessage: received });
    call = { channels, wanted, file: ++files, stop, client };
    client.done.then(() => say("Done."), (error) => say(error.message, true)).then(finish);
    node.port.onmessage = ({ data }) => {
      if (!call || call.isEnding) return;
      $("level").value = 4 * Math.sqrt(data.reduce((sum, each) => sum + each * each, 0) / data.length);
      call.sentAt = performance.now();
      call.client.send(data);
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
  if (!navigator.clipboard) return say("Browsers allow copying only for https pages and for localhost.", true);
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
