/**
 * VTU files: unstructured meshes of VTK, as meshio, pyvista and ParaView write them.
 *
 * Arrays are text, or bytes in base64 or raw behind the document; bytes may be compressed by zlib, in blocks.
 */

import { inflated } from "./npz.js";

const NUMBERS = {
  ...{ Float32: Float32Array, Float64: Float64Array, Int64: BigInt64Array, UInt64: BigUint64Array },
  ...{ Int8: Int8Array, Int16: Int16Array, Int32: Int32Array, UInt8: Uint8Array, UInt16: Uint16Array, UInt32: Uint32Array },
};
const LEAD = 4096; // bytes in which the document has begun
const ZLIB = "vtkZLibDataCompressor";
const MOST_BYTES = 512; // of an array, per point: in space, cells name a point up to 64 times

/**
 * Return the mesh of a file.
 *
 * @param {ArrayBuffer} file
 * @param {number} most The most points that the mesh may have.
 * @returns {Promise<object>} `count`, `points` (three numbers each), `types` and `ends` of the cells and their `nodes`, all
 *     cells in turn, `pointData` and `cellData`: `{name, width, values, isWhole}` each, and the `time`, null where the file says
 *     none.
 * @throws {Error} It is none, or cannot be read.
 */
export async function decode(file, most) {
  const bytes = new Uint8Array(file);
  const start = find(bytes, "<AppendedData");
  const isMesh = new TextDecoder().decode(bytes.subarray(0, LEAD)).includes("<VTKFile"); // a parser's error may break the page's policy
  if (!isMesh) throw new Error("this is not a VTU file");
  const document = new DOMParser().parseFromString(new TextDecoder().decode(bytes.subarray(0, start)) + (start < bytes.length ? "</VTKFile>" : ""), "text/xml");
  const root = document.documentElement;
  if (document.querySelector("parsererror") || root.tagName !== "VTKFile") throw new Error("this is not a VTU file");
  const kind = root.getAttribute("type");
  if (kind !== "UnstructuredGrid") throw new Error(`it is of the type ${kind}; expected UnstructuredGrid`);
  if (root.getAttribute("byte_order") === "BigEndian") throw new Error("its numbers are big-endian; expected little-endian");
  const compressor = root.getAttribute("compressor");
  if (compressor && compressor !== ZLIB) throw new Error(`it is compressed by ${compressor}; expected ${ZLIB}, or none`);
  const pieces = document.querySelectorAll("Piece");
  if (pieces.length !== 1) throw new Error(`it has ${pieces.length} pieces; expected one`);
  const [piece] = pieces;
  const count = Number(piece.getAttribute("NumberOfPoints"));
  if (!(count >= 1 && count <= most)) throw new Error(`it has ${count} points; the model takes at most ${most}`);

  const header = NUMBERS[root.getAttribute("header_type") ?? "UInt32"];
  const reader = { header, compressed: Boolean(compressor), limit: MOST_BYTES * (most + 1000), appended: appended(bytes, start) };
  const arrays = async (part) => Promise.all([...piece.querySelectorAll(`${part} > DataArray`)].filter((array) => array.getAttribute("type") in NUMBERS).map((array) => read(array, reader)));
  const [[points], cells, pointData, cellData] = await Promise.all(["Points", "Cells", "PointData", "CellData"].map(arrays));
  if (points?.values.length !== 3 * count) throw new Error("its points are not complete");
  const moment = document.querySelector("UnstructuredGrid > FieldData > DataArray[Name='TimeValue']"); // as ParaView writes it
  const time = moment && NUMBERS[moment.getAttribute("type")] ? (await read(moment, reader)).values[0] : null;
  const cell = (name) => cells.find((array) => array.name === name)?.values ?? new Float64Array();
  const [types, ends, nodes] = ["types", "offsets", "connectivity"].map(cell);
  if (types.length !== ends.length || ends.some((end, i) => end < (i ? ends[i - 1] : 0) || end > nodes.length)) throw new Error("its cells are not complete");
  const wrong = nodes.find((node) => !(node >= 0 && node < count));
  if (wrong !== undefined) throw new Error(`its cells name point ${wrong}, counted from 0, of ${count} points`);
  return { count, points: points.values, types, ends, nodes, pointData, cellData, time };
}

/** Return where a text begins in bytes; their number if it is not there. */
function find(bytes, text) {
  const wanted = new TextEncoder().encode(text);
  for (let at = bytes.indexOf(wanted[0]); at >= 0; at = bytes.indexOf(wanted[0], at + 1)) if (wanted.every((byte, i) => bytes[at + i] === byte)) return at;
  return bytes.length;
}

/** Return the source of arrays behind the document; null if there is none. */
function appended(bytes, start) {
  if (start === bytes.length) return null;
  const begin = bytes.indexOf("_".charCodeAt(0), bytes.indexOf(">".charCodeAt(0), start)) + 1;
  const isText = new TextDecoder().decode(bytes.subarray(start, begin)).includes("base64");
  return isText ? encoded(new TextDecoder().decode(bytes.subarray(begin))) : (from, size) => [bytes.slice(begin + from, begin + from + size), from + size];
}

/** Return a source of bytes in base64: a function of position and size that returns bytes and the position behind them. */
function encoded(text) {
  return (from, size) => {
    const end = from + 4 * Math.ceil(size / 3);
    return [Uint8Array.from(atob(text.slice(from, end)), (letter) => letter.charCodeAt(0)).subarray(0, size), end];
  };
}

/** Return name, width and values of an array. */
async function read(array, reader) {
  const attribute = (name) => array.getAttribute(name);
  const made = { name: attribute("Name"), width: Number(attribute("NumberOfComponents") || 1), isWhole: attribute("type").includes("Int") };
  const format = attribute("format");
  if (format === "ascii") return { ...made, values: Float64Array.from(array.textContent.match(/\S+/g) ?? [], Number) };
  const source = format === "appended" ? reader.appended : encoded(array.textContent.replace(/\s+/g, ""));
  const bytes = await content(source, Number(attribute("offset") ?? 0), reader);
  const numbers = NUMBERS[attribute("type")];
  return { ...made, values: Float64Array.from(new numbers(bytes.buffer, 0, Math.floor(bytes.length / numbers.BYTES_PER_ELEMENT)), Number) };
}

/** Return the bytes of an array: behind their number, or in compressed blocks behind the sizes of these. */
async function content(source, start, { header, compressed, limit }) {
  const width = header.BYTES_PER_ELEMENT;
  const numbers = (count) => {
    const [bytes, end] = source(start, count * width);
    return [Array.from(new header(bytes.slice().buffer), Number), end];
  };
  const [[first]] = numbers(1);
  if (first > limit) throw new Error("it holds more numbers than the model takes, or is damaged");
  if (!compressed) return source(start, width + first)[0].slice(width);
  const [[, , , ...sizes], end] = numbers(3 + first);
  const packed = source(end, sizes.reduce((sum, size) => sum + size, 0))[0];
  const blocks = [];
  let from = 0;
  for (const size of sizes) blocks.push(await inflated(packed.slice(from, (from += size)), limit, "deflate"));
  return new Uint8Array(await new Blob(blocks).arrayBuffer());
}
