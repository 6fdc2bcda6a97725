"""Live text from the microphone: pip install '.[mic]'."""

import queue

import numpy as np
import sounddevice

import asrkit

recognizer = asrkit.load("small-en-alnum", endpointer=asrkit.Endpointer(pause_ms=1000))
session, packets = recognizer.start(16000), queue.Queue[np.ndarray]()
finished = 0
with sounddevice.InputStream(16000, channels=1, callback=lambda x, *_: packets.put(x.copy())):
    while True:  # until Ctrl-C
        result = session.accept(packets.get())
        for segment in result.segments[finished:]:
            print(f"\r{segment.text:60}")
        finished = len(result.segments)
        print(f"\r… {result.open_text}", end="", flush=True)
