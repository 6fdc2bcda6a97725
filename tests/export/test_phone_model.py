"""The model of clients/phone-en-alnum: sherpa-onnx's graphs beside it are that model."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

from asrkit.audio import features
from asrkit.backends.export_metadata import Exported
from asrkit.backends.pytorch import eager
from asrkit.build import build_frontend
from asrkit.export import sherpa_graphs, sherpa_nemo
from asrkit.export.sherpa_layouts import NEMO_TRANSDUCER, layout_of
from asrkit.model import Context
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import recognizer_of
from tests.conftest import PROJECT, RECORDINGS
from tests.export.test_programs import found

FOLDER = PROJECT / "clients" / "phone-en-alnum"
MOST_BYTES = 6_000_000  # of the files that an app needs
MOST_LABELS = 10  # of a frame, in sherpa-onnx
RECORDED = sorted(RECORDINGS.glob("an4/audio/*/*.flac"))[::7]


@pytest.fixture(scope="module")
def file() -> ModelFile:
    return load_model(FOLDER / "phone-en-alnum.safetensors")


@pytest.fixture(scope="module")
def exported(file: ModelFile) -> Exported:
    return Exported("transducer", file.config.context.live, file.model.encoder.rate.frame_ms)


def session(name: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(FOLDER / f"{name}.onnx")


def test_files_are_those_of_the_exporter(file: ModelFile, exported: Exported) -> None:
    assert layout_of(file) is NEMO_TRANSDUCER
    about = session("encoder").get_modelmeta().custom_metadata_map
    expected = sherpa_nemo.metadata(file, exported)
    assert about == {key: str(value) for key, value in expected.items()}
    assert (FOLDER / "tokens.txt").read_text() == NEMO_TRANSDUCER.tokens(file)
    lines = NEMO_TRANSDUCER.readme("phone-en-alnum", file, exported).split("```")[1]
    assert lines.replace("'", '"') in (FOLDER / "README.md").read_text()
    files = [FOLDER / name for name in (*NEMO_TRANSDUCER.files, "tokens.txt")]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def encoded(feats: np.ndarray) -> np.ndarray:
    """The encoder frames (E, D) of features (1, T, F), in windows as sherpa-onnx passes them."""
    encoder, frames = session("encoder"), []
    about = encoder.get_modelmeta().custom_metadata_map
    window, shift = int(about["window_size"]), int(about["chunk_shift"])
    shapes = [
        [1, *(int(about[f"cache_last_{name}_dim{i}"]) for i in (1, 2, 3))]
        for name in ("channel", "time")
    ]
    caches = [*(np.zeros(each, np.float32) for each in shapes), np.zeros(1, np.int64)]
    for at in range(0, feats.shape[1] - window + 1, shift):
        step = feats[:, at : at + window].transpose(0, 2, 1), np.array([window])
        names = (each.name for each in encoder.get_inputs())
        output, _, *caches = encoder.run(None, dict(zip(names, (*step, *caches), strict=True)))
        frames.append(output[0].T)
    return np.concatenate(frames)


def text_of(frames: np.ndarray) -> str:
    """The text of sherpa-onnx's greedy search over encoder frames (E, D)."""
    decoder, joiner = session("decoder"), session("joiner")
    symbols = [line.split(" ")[0] for line in (FOLDER / "tokens.txt").read_text().splitlines()]
    blank, text = len(symbols) - 1, ""

    def predict(label: int, *state: np.ndarray) -> list[np.ndarray]:
        inputs = {"targets": np.array([[label]], np.int32), "target_length": np.ones(1, np.int32)}
        states = dict(zip(("states_1", "states_2"), state, strict=True))
        outputs: list[np.ndarray] = decoder.run(None, inputs | states)
        return [outputs[0], *outputs[2:]]

    zeros = np.zeros(decoder.get_inputs()[2].shape[::2], np.float32)[:, None]
    predicted, *state = predict(blank, zeros, zeros)
    for frame in frames:
        for _ in range(MOST_LABELS):
            inputs = {"encoder_outputs": frame[None, :, None], "decoder_outputs": predicted}
            label = int(joiner.run(None, inputs)[0].argmax())
            if label == blank:
                break
            text += symbols[label].replace("▁", " ")
            predicted, *state = predict(label, *state)
    return text.strip()


def test_graphs_are_the_model(file: ModelFile, exported: Exported) -> None:
    frontend, texts = build_frontend(file.config.model), set()
    tail = sherpa_graphs.tail_samples(file, exported)
    for path in RECORDED:
        samples = np.pad(soundfile.read(path, dtype="float32")[0], (0, tail))
        feats, _ = features(frontend, samples[None], np.array([len(samples)]))
        frames = encoded(feats)
        backends = (eager(file.model, each) for each in (exported.context, Context(4, 64)))
        ours, others = (
            each.step(feats, np.array([feats.shape[1]]), each.init_state(1)).frames[0]
            for each in backends
        )
        np.testing.assert_allclose(frames, ours[: len(frames)], atol=1e-4)
        assert np.abs(frames - others[: len(frames)]).max() > 0.01  # control
        session = recognizer_of(file, exported.context).start()
        assert text_of(frames) == session.accept(samples).text
        texts.add(text_of(frames))
    assert len(texts) == len(RECORDED)


def test_texts_of_the_npm_package_are_asrkits(
    file: ModelFile, exported: Exported, tmp_path: Path
) -> None:
    """By the example, with recordings at 16 kHz."""
    package = found("node", "-p", "require.resolve('sherpa-onnx/package.json')")
    if not package:
        pytest.skip("needs Node and sherpa-onnx, in NODE_PATH if need be")
    (tmp_path / "node_modules").symlink_to(Path(package).parents[1])
    shutil.copy(PROJECT / "docs" / "examples" / "sherpa_onnx.mjs", tmp_path)
    texts, tail = {}, sherpa_graphs.tail_samples(file, exported)
    for path in RECORDED:
        samples = soundfile.read(path, dtype="int16")[0]
        soundfile.write(tmp_path / f"{path.stem}.wav", samples, 16000, subtype="PCM_16")
        session = recognizer_of(file, exported.context).start()
        texts[f"{path.stem}.wav"] = session.accept(np.pad(samples, (0, tail))).text

    def printed(zeros: int) -> dict[str, str]:
        command = ["node", "sherpa_onnx.mjs", str(FOLDER), str(zeros), *texts]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return dict(line.split("\t") for line in done.stdout.splitlines())

    assert printed(tail) == texts
    assert printed(0) != texts  # control
