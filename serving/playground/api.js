/**
 * The service's public interface, used as any program would use it: documents and fields from its paths.
 *
 * Addresses are relative to the page, so that the service works behind a proxy under any path. The key is held in this
 * module's memory only and is sent in one header.
 */

import { MEDIA_TYPE as NPY, decode as fromNpy } from "./npy.js";
import { MEDIA_TYPE as SAFETENSORS, decode as fromSafetensors, encode as safetensors } from "./safetensors.js";

const MAX_VALUES = 2 ** 24; // 64 MiB of a response
const JSON_TYPE = "application/json";
let key = "";

/** An error of the service (RFC 9457), or that it cannot be reached. */
export class Problem extends Error {
  constructor({ kind, title, detail, status = 0, wait = null }) {
    super(detail);
    Object.assign(this, { kind, title, detail, status, wait });
  }

  /** Whether the service is unavailable and is expected to return. */
  get passing() {
    return ["unreachable", "triton-unavailable", "model-not-ready"].includes(this.kind);
  }

  /** Whether the key is missing, or has no right to the request. */
  get wantsKey() {
    return this.status === 401 || this.status === 403;
  }

  /** Whether the service is overloaded; `wait` has the seconds to wait. */
  get busy() {
    return !this.passing && (this.status === 503 || this.status === 429);
  }
}

export function useKey(value) {
  key = value;
}

export function hasKey() {
  return key !== "";
}

/** Return the full address of a path. */
export function address(path) {
  return new URL(path, document.baseURI).href;
}

export const paths = {
  models: () => "v1/models",
  model: (name) => `v1/models/${encodeURIComponent(name)}`,
  predict: (name, version, grid) => `${paths.model(name)}${version ? `/versions/${version}` : ""}/predict${grid ? `?grid=${grid}` : ""}`,
  example: (name, seed, points) => `${paths.model(name)}/example?seed=${seed}&grid=${points}`,
  sample: (name, index) => `${paths.model(name)}/example?index=${index}`,
  reference: (name) => `${paths.model(name)}/reference`,
};

export function models() {
  return json(paths.models());
}

/** Return name and version of the server. */
export function server() {
  return json("v2");
}

export function model(name) {
  return json(paths.model(name));
}

/** Return an input of the training distribution. */
export async function example(name, seed, points, signal) {
  const response = await call(paths.example(name, seed, points), { headers: { Accept: NPY }, signal });
  return fromNpy(await response.arrayBuffer(), MAX_VALUES);
}

/** Return a test sample: the arrays of its inputs and of its true outputs by name, and the number of samples. */
export async function sample(name, index, signal) {
  const response = await call(paths.sample(name, index), { headers: { Accept: SAFETENSORS }, signal });
  return { arrays: await arraysOf(response), count: Number(response.headers.get("Petrov-Examples")) };
}

/**
 * Return what a model predicts for a sample or a batch.
 *
 * @param {string} name The model.
 * @param {number | null} version Null for the newest.
 * @param {Record<string, {shape: number[], data: Float32Array}>} inputs Arrays by input name, all with a batch axis or none.
 * @param {AbortSignal} [signal]
 * @param {number[]} [grid] The points per axis of the outputs, of a model whose inputs have no grid.
 * @returns {Promise<{outputs: object, milliseconds: number, processor: number | undefined, headers: Headers}>} Arrays by name,
 *     also those that say what is known of the errors, and the milliseconds of the round trip and of the processor.
 */
export function predict(name, version, inputs, signal, grid) {
  return post(paths.predict(name, version, grid), inputs, signal);
}

/** Return the classical solutions for the same inputs, as `predict` does. */
export function reference(name, inputs, signal) {
  return post(paths.reference(name), inputs, signal);
}

/** Return whether every model is loaded and warm and, if not, why. */
export async function readiness() {
  try {
    const response = await fetch("health/ready", { cache: "no-store" });
    return await response.json();
  } catch {
    return { ready: false, reason: "the service cannot be reached" };
  }
}

async function post(path, inputs, signal) {
  const start = performance.now();
  const headers = { "Content-Type": SAFETENSORS, Accept: SAFETENSORS };
  const response = await call(path, { method: "POST", headers, body: safetensors(inputs), signal });
  const outputs = await arraysOf(response);
  return { outputs, milliseconds: performance.now() - start, processor: processorTime(response.headers), headers: response.headers };
}

async function arraysOf(response) {
  return fromSafetensors(await response.arrayBuffer(), Infinity, () => true); // as large as the service makes it
}

/** Return the milliseconds of processor time in the header `Server-Timing`; undefined where it has none. */
function processorTime(headers) {
  const times = [...(headers.get("Server-Timing") ?? "").matchAll(/\bdur=([\d.]+)/g)].map(([, number]) => Number(number));
  return times.length ? times.reduce((sum, each) => sum + each) : undefined;
}

async function json(path) {
  return (await call(path, { headers: { Accept: JSON_TYPE } })).json();
}

async function call(path, options) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ kind: "unreachable", title: "The service cannot be reached", detail: "It does not respond" });
  }
  if (!response.ok) throw await problem(response);
  return response;
}

async function problem(response) {
  const text = await response.text();
  const wait = Number(response.headers.get("Retry-After")) || null;
  try {
    const { type, title, detail, status } = JSON.parse(text);
    return new Problem({ kind: type.split(":").at(-1), title, detail, status, wait });
  } catch {
    return new Problem({ kind: "unknown", title: `Status ${response.status}`, detail: text.slice(0, 200), status: response.status, wait });
  }
}
