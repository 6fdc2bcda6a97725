"""Pack a manifest in shards: asrkit data shard train.jsonl --output train-shards"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.parser import Parser, whole

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data shard", __doc__,
        "asrkit data shard train.jsonl --output train-shards\n\n"
        "exit status: 0 packed, 2 nothing could be packed",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a manifest")
    arguments.add_argument(
        "--output", required=True, metavar="DIR", help="new folder of the shards and their index"
    )
    arguments.add_argument(
        "--shard-size", type=whole(1, 1_000_000), default=1000, metavar="N",
        help="utterances in a shard (default 1000)",
    )  # fmt: skip
    return arguments.run(shard, argv)


def shard(options: argparse.Namespace) -> int:
    from asrkit.data.inputs import read_distinct
    from asrkit.data.shards import pack

    left_out: list[LeftOut] = []
    recordings = read_distinct(options.manifest)
    index = pack(recordings, Path(options.output), options.shard_size, left_out)
    for each in left_out[:5]:
        print(f"left out {each}", file=sys.stderr)
    hours = sum(index["duration"].to_pylist()) / 3600
    print(
        f"{options.output}: {index.num_rows} utterances, {hours:.2f} h in "
        f"{len(index['audio'].unique())} shards; {len(left_out)} left out"
    )
    return 0
