// The page: microphone or file -> /v1/stream -> text. Messages are those of asrkit/serve/messages.py.
const $ = (id) => document.getElementById(id);
const MOST_BUFFERED = 1 << 20; // bytes that may wait for the network before blocks are held back

let call = null; // {socket, stop(), sentAt, rate} while one goes on
let segments = []; // final ones
let live = { text: "", stable: "" };

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

function show() {
  const text = $("text");
  text.replaceChildren();
  for (const segment of segments) {
    const line = document.createElement("div");
    for (const word of segment.words) {
      const span = document.createElement("span");
      span.textContent = word.text + " ";
      span.title = `${word.start.toFixed(2)} to ${word.end.toFixed(2)} s, confidence ${word.confidence.toFixed(2)}`;
      line.append(span);
    }
    text.append(line);
  }
  if (live.text) {
    const line = document.createElement("div");
    line.className = "live";
    const stable = document.createElement("span");
    stable.className = "stable";
    stable.textContent = live.stable;
    line.append(stable, live.text.slice(live.stable.length));
    text.append(line);
  }
  text.scrollTop = text.scrollHeight;
}

function received(message) {
  if (message.type === "started") $("model").textContent = `${message.model}, ${message.context}`;
  if (message.type === "final") {
    segments.push(message);
    live = { text: "", stable: "" };
  }
  if (message.type === "partial") {
    live = message;
    if (call && call.sentAt) $("delay").textContent = `${Math.round(performance.now() - call.sentAt)} ms`;
  }
  if (message.type === "error") say(message.message, true);
  if (message.type === "ended") say("Done.");
  if (message.type === "final" || message.type === "partial") show();
}

function connect(rate) {
  const url = new URL("v1/stream", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const token = new URLSearchParams(location.search).get("token");
  if (token) url.searchParams.set("token", token);
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  const hotwords = $("hotwords").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return new Promise((resolve, reject) => {
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: "start", sample_rate: rate, hotwords }));
      resolve(socket);
    };
    socket.onerror = () => reject(new Error("The server cannot be reached, or refuses this page."));
    socket.onmessage = ({ data }) => received(JSON.parse(data));
    socket.onclose = (event) => {
      if (event.code !== 1000) say(event.reason || `The connection was lost (${event.code}).`, true);
      finish();
    };
  });
}

function finish() {
  if (!call) return;
  call.stop();
  call = null;
  $("talk").textContent = "Start";
  $("talk").setAttribute("aria-pressed", "false");
  $("level").value = 0;
}

function whyNoMicrophone(error) {
  return {
    NotAllowedError: "The microphone is not allowed: allow it for this page in the browser's settings.",
    NotFoundError: "There is no microphone.",
    NotReadableError: "The microphone is in use by another program.",
  }[error.name] || String(error.message || error);
}

async function talk() {
  if (call) {
    call.stop();
    if (call.socket.readyState === WebSocket.OPEN) call.socket.send(JSON.stringify({ type: "end" }));
    say("Finishing…");
    return;
  }
  if (!navigator.mediaDevices) {
    say("Browsers give the microphone to https pages and to localhost only.", true);
    return;
  }
  let stream, context;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    context = new AudioContext(); // of the device's rate: another one throws in Firefox
    await context.audioWorklet.addModule("worklet.js");
    const socket = await connect(context.sampleRate);
    const node = new AudioWorkletNode(context, "blocks", { numberOfOutputs: 0 });
    const held = [];
    node.port.onmessage = ({ data }) => {
      const samples = new Int16Array(data);
      $("level").value = Math.sqrt(samples.reduce((sum, each) => sum + each * each, 0) / samples.length) / 8000;
      held.push(data);
      if (socket.readyState !== WebSocket.OPEN) return;
      while (held.length && socket.bufferedAmount < MOST_BUFFERED) socket.send(held.shift());
      if (call) call.sentAt = performance.now();
    };
    context.createMediaStreamSource(stream).connect(node);
    call = {
      socket,
      stop() {
        for (const track of stream.getTracks()) track.stop();
        if (context.state !== "closed") context.close();
      },
    };
    $("talk").textContent = "Stop";
    $("talk").setAttribute("aria-pressed", "true");
    say("Listening.");
  } catch (error) {
    if (stream) for (const track of stream.getTracks()) track.stop();
    if (context) context.close();
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
  const token = new URLSearchParams(location.search).get("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  try {
    const response = await fetch("v1/audio/transcriptions", { method: "POST", body: form, headers });
    const body = await response.json();
    if (!response.ok) return say(body.error.message, true);
    for (const segment of body.segments) {
      const words = body.words.filter((word) => word.start >= segment.start && word.start < segment.end);
      segments.push({ ...segment, words: words.map((word) => ({ ...word, text: word.word, confidence: 1 })) });
    }
    show();
    say(`${file.name}: ${body.duration.toFixed(1)} s.`);
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
  txt: () => segments.map((segment) => segment.text + "\n").join(""),
  srt: () =>
    segments.map((each, i) => `${i + 1}\n${stamp(each.start)} --> ${stamp(each.end)}\n${each.text}\n\n`).join(""),
};

function download(kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([texts[kind]()], { type: "text/plain" }));
  link.download = `asrkit.${kind}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

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
  live = { text: "", stable: "" };
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
