"""The description in an exported file, which `backends.export_metadata` reads."""

import json
from base64 import b64encode

from asrkit.audio import HOP
from asrkit.backends.check import probe
from asrkit.backends.export_metadata import FORMAT_VERSION, Exported, encoded
from asrkit.backends.pytorch import eager
from asrkit.build import build_frontend
from asrkit.model_contents import ModelFile
from asrkit.model_tensors import fingerprint


def describe(exported: Exported, file: ModelFile) -> str:
    """Return a JSON description for programs that use the file, and for `described`.

    That of a file which a search reads has what asrkit needs to run it without its model file.
    """
    tokenizer, frontend = file.tokenizer, build_frontend(file.config.model)
    values = {
        "what": exported.what,
        "chunk_size": exported.context.chunk_size,
        "left_context": exported.context.left,
        "right_context": exported.context.right,
        "frame_ms": exported.frame_ms,
        "format_version": FORMAT_VERSION,
        "symbols": [tokenizer.piece(token) for token in range(1, tokenizer.vocab_size)],
        "config": file.config.model_dump(mode="json"),
        "lead_frames": frontend.lead_frames,
        "samples_before": frontend.before,
        "samples_after": frontend.after,
        "samples_ahead": samples_ahead(exported, file),
        "weights": fingerprint(file.model.state_dict()),
        "model": file.checksum,
        "precision": "float32",
    } | file.terms.metadata()
    if exported.what == file.config.model.head.kind:
        expected = probe(eager(file.model, exported.context), frontend)
        values |= {
            "tokenizer": encoded(tokenizer),
            "parameters": file.num_parameters,
            "probe": b64encode(expected.to_bytes()).decode(),
        }
    return json.dumps(values)


def samples_ahead(exported: Exported, file: ModelFile) -> int:
    """Return the number of samples of right context, R frames, that a chunk sees."""
    return HOP * file.model.encoder.rate.factor * exported.context.right
