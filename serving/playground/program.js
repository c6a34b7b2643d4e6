/** The last request as a program: with curl, with the Python client, and with its command line. */

import { address, hasKey, paths } from "./api.js";
import { MEDIA_TYPE as NPY } from "./npy.js";
import { MEDIA_TYPE as SAFETENSORS } from "./safetensors.js";

/**
 * @param {"curl" | "python" | "shell"} language
 * @param {object} request `model`, `version` (null for the newest) and `inputs` (names). Of fields also `parameters` (values by
 *     name, those that are not all at their defaults), `outputs` (names), `points` on the first axis, `origin` of the input,
 *     `grid` of the outputs where it is asked for, and `classical`, whether there is a solver. Of a text also `text` and `tokens`.
 */
export function program(language, request) {
  const writers = request.tokens ? { curl: curlText, python: pythonText, shell: shellText } : { curl, python, shell };
  return writers[language](request);
}

/** Return whether input and output are one array each, which an .npy file holds. */
export function isPlain({ inputs, outputs, parameters }) {
  return inputs.length === 1 && outputs.length === 1 && Object.keys(parameters).length === 0;
}

/** Return the names of the files that are sent and received. */
function files(request, several) {
  const { model, inputs, outputs } = request;
  return isPlain(request) ? [`${inputs[0]}.npy`, `${outputs[0]}.npy`] : [`${model}.${several}`, `${model}_output.${several}`];
}

function curl(request) {
  const { model, version, origin, points } = request;
  const [sent, received] = files(request, "safetensors");
  const type = isPlain(request) ? NPY : SAFETENSORS;
  const key = curlKey();
  const post = (path, file) => `curl --fail-with-body${key} --data-binary @${sent} -H 'Content-Type: ${type}' \\\n  '${address(path)}' -o ${file}`;
  const sources = { example: () => paths.example(model, origin.seed, points), sample: () => paths.sample(model, origin.index) };
  return [
    sources[origin.kind] ? `curl --fail-with-body${key} -H 'Accept: ${type}' \\\n  '${address(sources[origin.kind]())}' -o ${sent}` : source(sent),
    post(paths.predict(model, version, request.grid), received),
    ...(request.classical ? [post(paths.reference(model), `classical${received.slice(received.lastIndexOf("."))}`)] : []),
  ].join("\n");
}

/** Return where a file is from that the program does not fetch. */
function source(file) {
  return `# ${file}: “Download input”`;
}

function curlText({ model, version, inputs: [input], tokens }) {
  const body = JSON.stringify({ inputs: { [input]: tokens } });
  return `curl --fail-with-body${curlKey()} -H 'Content-Type: application/json' \\\n  -d '${body}' \\\n  '${address(paths.predict(model, version))}'`;
}

function pythonText({ model, version, text }) {
  return `${imports()}from petrov_client import Client

with ${client()} as petrov:
    model = petrov.model("${model}")
    tokens = model.encode(${JSON.stringify(text)})
    print(model.decode(petrov.predict("${model}", tokens${which(version)})))`;
}

function shellText({ model, version, text }) {
  return `petrov predict ${model} '${text.replaceAll("'", "'\\''")}'${options(version)}`;
}

function python(request) {
  const { model, version, outputs } = request;
  const [sent, received] = files(request, "npz");
  const isOne = outputs.length === 1;
  const result = isOne ? outputs[0] : "outputs";
  const save = isOne ? `np.save("${outputs[0]}.npy", ${result})` : `np.savez("${received}", **${result})`;
  return `${source(sent)}
${imports()}import numpy as np
from petrov_client import Client

with ${client()} as petrov:
    ${result} = petrov.predict("${model}", np.load("${sent}")${which(version, request.grid)})
${save}`;
}

function shell(request) {
  const [sent, received] = files(request, "npz");
  return `${source(sent)}
petrov predict ${request.model} ${sent} ${received}${options(request.version, request.grid)}`;
}

/** Return the options of the command; it reads the key from the environment. */
function options(version, grid) {
  return `${version ? ` --version ${version}` : ""}${grid ? ` --grid ${grid}` : ""} \\\n  --url ${service()}`;
}

function which(version, grid) {
  return (version ? `, version=${version}` : "") + (grid ? `, grid=[${grid.join(", ")}]` : "");
}

function curlKey() {
  return hasKey() ? ` -H "Authorization: Bearer $PETROV_API_KEY"` : "";
}

function imports() {
  return hasKey() ? "import os\n\n" : "";
}

function client() {
  const key = hasKey() ? `, api_key=os.environ["PETROV_API_KEY"]` : "";
  return `Client("${service()}"${key})`;
}

function service() {
  return address(".").replace(/\/$/, "");
}
