/** The .npz format of NumPy, as a writer: a zip archive of uncompressed .npy files. */

import { encode as npy } from "./npy.js";

const [LOCAL, CENTRAL, END] = [0x04034b50, 0x02014b50, 0x06054b50];
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
