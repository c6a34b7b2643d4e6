/**
 * The safetensors format: named arrays from bytes, and named arrays as bytes.
 *
 * Eight bytes hold the length of a header in JSON, which holds type, shape and offsets of every array.
 */

export const MEDIA_TYPE = "application/vnd.safetensors";
const [PREFIX, MAX_HEADER, WIDTH] = [8, 2 ** 16, 4];
const TYPES = { F32: Float32Array, BOOL: Uint8Array };

/**
 * Return the arrays of a file by name.
 *
 * @param {ArrayBuffer} file The whole file.
 * @returns {Record<string, {shape: number[], data: Float32Array | Uint8Array}>}
 * @throws {Error} It is none, or an array is neither float32 nor boolean.
 */
export function decode(file) {
  const length = file.byteLength < PREFIX ? Infinity : Number(new DataView(file).getBigUint64(0, true));
  if (length > MAX_HEADER || PREFIX + length > file.byteLength) throw new Error("this is not a safetensors file");
  const { __metadata__: _, ...entries } = JSON.parse(new TextDecoder().decode(new Uint8Array(file, PREFIX, length)));
  return Object.fromEntries(Object.entries(entries).map(([name, entry]) => [name, array(file, PREFIX + length, name, entry)]));
}

function array(file, start, name, { dtype, shape, data_offsets: [from, to] }) {
  if (!Object.hasOwn(TYPES, dtype)) throw new Error(`expected F32 or BOOL for ${name} but got ${dtype}`);
  return { shape, data: new TYPES[dtype](file.slice(start + from, start + to)) }; // a copy: the offset may not be aligned
}

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
