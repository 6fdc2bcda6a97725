"""sherpa-onnx-online-websocket-server at a free port, for tools/benchmarks/bench_serve.py.

    pip install --target FOLDER sherpa-onnx-bin
    python tools/sherpa_binary.py FOLDER/bin/sherpa-onnx-online-websocket-server --tokens=…

The address is written once the server listens. The package's libraries are found beside `bin`.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    libraries = Path(sys.argv[1]).resolve().parents[1] / "sherpa_onnx" / "lib"
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [*sys.argv[1:], f"--port={port}", f"--log-file={folder}/log", "--print-args=false"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"LD_LIBRARY_PATH": str(libraries)},
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        while server.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                time.sleep(0.05)
                continue
            print(f"sherpa-onnx: http://127.0.0.1:{port}/", file=sys.stderr, flush=True)
            break
        sys.exit(server.wait())


if __name__ == "__main__":
    main()
