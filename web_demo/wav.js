// WAV files.

const HEADER_BYTES = 44;

/** A WAV file of mono float samples, 16 bit. */
export function wavBlob(samples, sampleRate) {
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + 2 * samples.length));
  const text = (offset, value) => [...value].forEach((c, i) => view.setUint8(offset + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, 2 * sampleRate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => {
    const value = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
    view.setInt16(HEADER_BYTES + 2 * i, value, true);
  });
  return new Blob([view.buffer], { type: "audio/wav" });
}
