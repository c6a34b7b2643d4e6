/**
 * The .npy format: a field from the bytes of a file, and a field as such bytes.
 *
 * A field is `{shape, data}`: points per axis and a Float32Array in C order. Nothing is allocated before the header's
 * shape agrees with the length of the file. Format: numpy.lib.format, versions 1 to 3.
 */

export const MEDIA_TYPE = "application/x-npy";
const MAGIC = "\x93NUMPY";
const MAX_HEADER = 10_000;

/** By NumPy's name of a type its bytes and the method that reads one number. */
export const READERS = {
  f4: [4, "getFloat32"], f8: [8, "getFloat64"],
  i1: [1, "getInt8"], i2: [2, "getInt16"], i4: [4, "getInt32"], i8: [8, "getBigInt64"],
  u1: [1, "getUint8"], u2: [2, "getUint16"], u4: [4, "getUint32"], u8: [8, "getBigUint64"], b1: [1, "getUint8"],
};

/**
 * Return the array in an .npy file.
 *
 * @param {ArrayBuffer} file The whole file.
 * @param {number} most The most values that it may hold.
 * @returns {{shape: number[], data: Float32Array}}
 * @throws {Error} It is none, or holds something else than so many plain numbers.
 */
export function decode(file, most) {
  const view = new DataView(file);
  const [text, start] = header(file, view);
  const [endian, code] = dtype(text);
  const shape = sizes(text);
  const count = shape.reduce((product, size) => product * size, 1);
  const [width, read] = READERS[code];
  if (count > most) throw new Error(`shape (${shape}) holds ${count} values; the most is ${most}`);
  if (count * width !== file.byteLength - start)
    throw new Error(`shape (${shape}) of ${code} takes ${count * width} bytes, but ${file.byteLength - start} follow the header`);
  const data = new Float32Array(count);
  for (let i = 0; i < count; i++) data[i] = Number(view[read](start + i * width, endian !== ">"));
  return { shape, data: /'fortran_order':\s*True/.test(text) ? transposed(data, shape) : data };
}

/** An .npy file (version 1) of a field, or of tokens (an Int32Array). */
export function encode({ shape, data }) {
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const whole = data instanceof Int32Array;
  const text = `{'descr': '${whole ? "<i4" : "<f4"}', 'fortran_order': False, 'shape': (${sizes}), }`;
  const padded = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n"; // the data are aligned to 64 bytes
  const file = new ArrayBuffer(10 + padded.length + data.length * 4);
  const bytes = new Uint8Array(file);
  const view = new DataView(file);
  bytes.set([...MAGIC].map((letter) => letter.charCodeAt(0)));
  bytes[6] = 1;
  view.setUint16(8, padded.length, true);
  bytes.set(new TextEncoder().encode(padded), 10);
  for (let i = 0; i < data.length; i++) view[whole ? "setInt32" : "setFloat32"](10 + padded.length + i * 4, data[i], true);
  return file;
}

/** The header's text and the offset of the data. */
function header(file, view) {
  const start = file.byteLength >= 12 && view.getUint8(6) === 1 ? 10 : 12;
  if (file.byteLength < start || String.fromCharCode(...new Uint8Array(file, 0, 6)) !== MAGIC)
    throw new Error("this is not an .npy file");
  const length = start === 10 ? view.getUint16(8, true) : view.getUint32(8, true);
  if (length > MAX_HEADER || file.byteLength < start + length) throw new Error("the .npy header is cut off or too long");
  return [new TextDecoder("latin1").decode(new Uint8Array(file, start, length)), start + length];
}

function dtype(text) {
  const found = /'descr':\s*'([<>|=]?)(\w+)'/.exec(text);
  if (!found || !Object.hasOwn(READERS, found[2]))
    throw new Error(`expected plain numbers such as float32 but got ${found ? found[2] : "structured records"}`);
  return [found[1], found[2]];
}

function sizes(text) {
  const found = /'shape':\s*\(([\d,\s]*)\)/.exec(text);
  if (!found) throw new Error("the .npy header has no shape");
  return found[1].split(",").map((size) => size.trim()).filter(Boolean).map(Number);
}

/** The values of an array in Fortran order, in C order. */
function transposed(data, shape) {
  const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((product, size) => product * size, 1));
  return data.map((_, index) => {
    let from = 0;
    for (let axis = shape.length - 1, rest = index; axis >= 0; axis--) {
      from += (rest % shape[axis]) * strides[axis];
      rest = Math.floor(rest / shape[axis]);
    }
    return data[from];
  });
}
