/**
 * The safetensors format: named arrays as bytes.
 *
 * Eight bytes hold the length of a header in JSON, which holds type, shape and offsets of every array.
 */

export const MEDIA_TYPE = "application/vnd.safetensors";
const [PREFIX, WIDTH] = [8, 4];

/** Return a file of float32 and int32 arrays by name. */
export function encode(arrays) {
  const header = {};
  let end = 0;
  for (const [name, { shape, data }] of Object.entries(arrays)) {
    header[name] = { dtype: data instanceof Int32Array ? "I32" : "F32", shape, data_offsets: [end, (end += WIDTH * data.length)] };
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = Math.ceil(text.length / PREFIX) * PREFIX;
  const file = new Uint8Array(PREFIX + padded + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(padded), true);
  file.fill(0x20, PREFIX, PREFIX + padded);
  file.set(text, PREFIX);
  for (const [name, { data }] of Object.entries(arrays))
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), PREFIX + padded + header[name].data_offsets[0]);
  return file.buffer;
}
