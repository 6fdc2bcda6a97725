"""Convert a checkpoint of another toolkit: asrkit import nemo M.nemo --output O"""

from asrkit.cli.choices import CHECKPOINTS
from asrkit.cli.parser import Parser, Target, whole
from asrkit.cli.terms import add_terms


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit import", __doc__,
        "asrkit import nemo stt_en.nemo --output stt_en.safetensors --licence CC-BY-4.0",
    )  # fmt: skip
    arguments.add_argument("format", choices=CHECKPOINTS, help="toolkit that wrote the checkpoint")
    arguments.add_argument(
        "checkpoint", help="file or folder of the checkpoint, or hf://owner/name"
    )
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the checkpoint, if it states one")
    arguments.add_argument(
        "--head", choices=("transducer", "ctc"),
        help="head of a hybrid model of NeMo (default: the transducer, with the CTC layer beside "
        "it)",
    )  # fmt: skip
    arguments.add_argument(
        "--prompt", metavar="LANGUAGE",
        help="language of a model of NeMo with a language prompt, such as de-DE or auto",
    )  # fmt: skip
    arguments.add_argument(
        "--frame-ms", type=whole(20, 80), choices=(20, 40, 80),
        help="encoder frame of a start from Whisper in ms (default: 40; 20, as in Whisper, takes "
        "twice the time)",
    )  # fmt: skip
    arguments.add_argument("--name", help="name of the model (default: the checkpoint's)")
    return arguments.run("import_:import_", argv)


if __name__ == "__main__":
    raise SystemExit(main())
