/** The .npz format of NumPy: a zip archive of .npy files. */

import { decode as fromNpy, encode as npy } from "./npy.js";

const [LOCAL, CENTRAL, END] = [0x04034b50, 0x02014b50, 0x06054b50];
const [STORED, DEFLATED] = [0, 8];
const END_BYTES = 22; // without a comment, which NumPy does not write
const EARLIEST_DATE = 0x21; // 1 January 1980: the same arrays are the same bytes

/** Return an archive of arrays by name. */
export function encode(arrays) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [name, array] of Object.entries(arrays)) {
    const path = new TextEncoder().encode(`${name}.npy`);
    const content = new Uint8Array(npy(array));
    const facts = [20, 0, 0, 0, EARLIEST_DATE, [crc32(content)], [content.length], [content.length], path.length, 0];
    const local = record([[LOCAL], ...facts]);
    directory.push(record([[CENTRAL], 20, ...facts, 0, 0, 0, [0], [offset]]), path);
    parts.push(local, path, content);
    offset += local.length + path.length + content.length;
  }
  const [count, size] = [directory.length / 2, directory.reduce((sum, { length }) => sum + length, 0)];
  return new Blob([...parts, ...directory, record([[END], 0, 0, count, count, [size], [offset], 0])]);
}

/**
 * Return the arrays of an archive by name.
 *
 * @param {ArrayBuffer} file The whole file.
 * @param {number} most The most values that an array may hold.
 * @param {(name: string) => boolean} isTaken Which arrays are read; others are null.
 * @returns {Promise<Record<string, {shape: number[], data: Float32Array}>>}
 * @throws {Error} It is none, or an array cannot be read.
 */
export async function decode(file, most, isTaken) {
  const view = new DataView(file);
  const end = file.byteLength - END_BYTES;
  if (end < 0 || view.getUint32(end, true) !== END) throw new Error("this is not an .npz file");
  const arrays = {};
  let at = view.getUint32(end + 16, true);
  for (let count = view.getUint16(end + 10, true); count > 0; count--) {
    if (at + 46 > end || view.getUint32(at, true) !== CENTRAL) throw new Error("the .npz file is damaged");
    const [path, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true));
    const name = new TextDecoder().decode(new Uint8Array(file, at + 46, path)).replace(/\.npy$/, "");
    try {
      arrays[name] = isTaken(name) ? fromNpy(await member(file, view, at, most), most) : null;
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
    at += 46 + path + extra + comment;
  }
  return arrays;
}

/** Return the content of the member that a central record describes. */
async function member(file, view, record, most) {
  const [method, size, start] = [view.getUint16(record + 10, true), view.getUint32(record + 20, true), view.getUint32(record + 42, true)];
  if (start + 30 > record || view.getUint32(start, true) !== LOCAL) throw new Error("the .npz file is damaged");
  const begin = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
  const content = file.slice(begin, begin + size);
  if (method === STORED) return content;
  if (method !== DEFLATED) throw new Error(`compression ${method} is not supported`);
  return inflated(content, LONGEST_VALUE * most + LONGEST_HEADER);
}

const [LONGEST_VALUE, LONGEST_HEADER] = [8, 20_000]; // bytes

/** Return decompressed bytes; more than `most` are refused before they fill the memory. */
export async function inflated(content, most, format = "deflate-raw") {
  const parts = [];
  let size = 0;
  const reader = new Blob([content]).stream().pipeThrough(new DecompressionStream(format)).getReader(); // which Safari does not iterate
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length;
    if (size > most) throw new Error(`an array of the file takes more than ${most} bytes`);
    parts.push(next.value);
  }
  return new Blob(parts).arrayBuffer();
}

/** Return little-endian bytes: two for a number, four for a number in brackets. */
function record(values) {
  const bytes = new DataView(new ArrayBuffer(values.reduce((sum, value) => sum + (Array.isArray(value) ? 4 : 2), 0)));
  let at = 0;
  for (const value of values) {
    if (Array.isArray(value)) bytes.setUint32(at, value[0], true);
    else bytes.setUint16(at, value, true);
    at += Array.isArray(value) ? 4 : 2;
  }
  return new Uint8Array(bytes.buffer);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crc32(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = TABLE[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
