// The microphone's samples in blocks of about 100 ms, at its own rate: the server resamples.
// Several channels are interleaved.
class Blocks extends AudioWorkletProcessor {
  constructor({ processorOptions: { channels } }) {
    super();
    this.channels = channels;
    this.block = new Float32Array(channels * Math.round(sampleRate / 10));
    this.filled = 0;
  }
  process([input]) {
    if (!input[0]) return true;
    for (let i = 0; i < input[0].length * this.channels; i++) {
      this.block[this.filled++] = input[i % this.channels]?.[Math.floor(i / this.channels)] ?? 0;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("blocks", Blocks);
