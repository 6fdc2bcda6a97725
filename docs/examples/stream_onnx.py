"""Stream a wav file (16 kHz, mono, 16 bits) with ONNX Runtime and NumPy, without asrkit.

asrkit export --model small-en-alnum --format onnx --what model --output model.onnx
python stream_onnx.py model.onnx a.wav
"""

import sys
import wave

import numpy as np
import onnxruntime


class Stream:
    """A stream of samples; any number of streams share a session."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        about = session.get_modelmeta().custom_metadata_map
        if (about["samples_before"], about["samples_after"]) != ("0", "0"):
            raise ValueError("this model needs samples before and after a stream: docs/export.md")
        self.session = session
        ends = ("<eou>", "<EOU>")  # labels for the end of a turn, which are not text
        texts = ["" if each in ends else each for each in about["symbols"].split("\n")]
        self.symbols = ["", *texts]  # label 0 is the blank
        inputs = {each.name: each for each in session.get_inputs()}
        self.past, self.chunk = inputs["past"].shape[1], int(about["chunk_length"])  # samples
        self.ahead = int(about.get("samples_ahead", 0))  # in the past, without a frame so far
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        self.state = {name: np.zeros([1, *each.shape[1:]], kinds[each.type])
                      for name, each in inputs.items() if name.startswith("state_")}  # fmt: skip
        self.waiting, self.label, self.pieces = np.zeros(0, np.float32), 0, ""

    def accept(self, samples: np.ndarray) -> str:
        """Append any number of samples, float32 in [-1, 1]; return the text so far."""
        self.waiting = np.concatenate([self.waiting, samples])
        while len(self.waiting) >= self.past + self.chunk:
            self.step(self.waiting[: self.past + self.chunk], self.chunk)
            self.waiting = self.waiting[self.chunk :]  # the last samples are the next past
        return " ".join(self.pieces.split())

    def finish(self) -> str:
        """Finish the stream; return its text."""
        window = self.past + self.chunk
        for rest in range(len(self.waiting) - self.past, -self.ahead, -self.chunk):
            self.step(np.pad(self.waiting, (0, window))[:window], rest)
            self.waiting = self.waiting[self.chunk :]
        return " ".join(self.pieces.split())

    def step(self, window: np.ndarray, length: int) -> None:
        """Recognise the past and a chunk; `length` real samples follow the past."""
        past, samples = np.split(window[None], [self.past], axis=1)
        inputs = {"past": past, "samples": samples, "lengths": np.array([length]), **self.state}
        names = ["log_probs", "frames", *(f"new_{name}" for name in self.state)]
        log_probs, frames, *new = self.session.run(names, inputs)
        self.state = dict(zip(self.state, new, strict=True))
        for label in log_probs[0, : frames[0]].argmax(axis=1):
            self.pieces += self.symbols[label] if label != self.label else ""
            self.label = label


def opened(path: str) -> wave.Wave_read:
    """Open a wav file for the model; exit with a message for an unsupported file."""
    try:
        wav = wave.open(path)  # noqa: SIM115
    except (OSError, EOFError, wave.Error) as error:
        sys.exit(f"{path}: cannot be read as wav with 16-bit samples: {error}")
    form = wav.getframerate(), wav.getnchannels(), 8 * wav.getsampwidth()
    if form != (16000, 1, 16):
        sys.exit(f"{path}: must have 16000 Hz, 1 channel, 16 bits; it has {form[0]} Hz, {form[1]} "
                 f"channels, {form[2]} bits: ffmpeg -i IN -ar 16000 -ac 1 OUT.wav")  # fmt: skip
    return wav


with opened(sys.argv[2]) as wav:
    stream = Stream(onnxruntime.InferenceSession(sys.argv[1]))
    while packet := wav.readframes(1600):  # 100 ms, like a microphone's packets
        print(stream.accept(np.frombuffer(packet, np.int16).astype(np.float32) / 32768), end="\r")
print(stream.finish())
