/**
 * The safetensors format: named arrays as bytes.
 *
 * Eight bytes hold the length of a header in JSON, which holds type, shape and offsets of every array.
 */

import { READERS } from "./npy.js";

export const MEDIA_TYPE = "application/vnd.safetensors";
const [PREFIX, WIDTH] = [8, 4];
const CODES = { F32: "f4", F64: "f8", I8: "i1", I16: "i2", I32: "i4", I64: "i8", U8: "u1", U16: "u2", U32: "u4", U64: "u8", BOOL: "b1" };

/**
 * Return the arrays of a file by name, the truth of a sample of the service by the names of the outputs; as `npz.decode` does.
 *
 * @throws {Error} It is none, or an array cannot be read.
 */
export function decode(file, most, isTaken) {
  const view = new DataView(file);
  const start = PREFIX + (file.byteLength < PREFIX ? Infinity : Number(view.getBigUint64(0, true)));
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, PREFIX, start - PREFIX)));
  } catch {
    throw new Error("this is not a safetensors file");
  }
  const entries = Object.entries(header).filter(([key]) => key !== "__metadata__");
  const named = entries.map(([key, entry]) => [key.replace(/^outputs\./, ""), entry]);
  return Object.fromEntries(named.map(([name, entry]) => [name, isTaken(name) ? array(name, entry, view, start, most) : null]));
}

function array(name, { dtype, shape, data_offsets: [from, to] }, view, start, most) {
  const [width, read] = READERS[CODES[dtype]] ?? [];
  if (!width) throw new Error(`${name}: expected plain numbers such as F32 but got ${dtype}`);
  const count = shape.reduce((product, size) => product * size, 1);
  if (count > most) throw new Error(`${name}: shape (${shape}) holds ${count} values; the most is ${most}`);
  if (count * width !== to - from || start + to > view.byteLength) throw new Error(`${name}: the file is cut off, or damaged`);
  if (dtype === "F32") return { shape, data: new Float32Array(view.buffer.slice(start + from, start + to)) };
  return { shape, data: Float32Array.from({ length: count }, (_, i) => Number(view[read](start + from + i * width, true))) };
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
