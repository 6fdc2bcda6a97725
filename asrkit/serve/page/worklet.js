// The microphone's samples as int16 blocks of about 100 ms, at its own rate: the server resamples.
class Blocks extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Int16Array(Math.round(sampleRate / 10));
    this.filled = 0;
  }
  process([input]) {
    const samples = input[0];
    if (!samples) return true;
    for (const sample of samples) {
      this.block[this.filled++] = Math.max(-1, Math.min(1, sample)) * 32767;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block.slice().buffer);
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("blocks", Blocks);
