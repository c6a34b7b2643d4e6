/** The last request as a program: with curl, and with the Python client. */

import { address, hasKey, paths } from "./api.js";

/**
 * @param {"curl" | "python"} language
 * @param {object} request `model`, `version` (null for the newest), `input`, `output` (names), `points` per axis, `seed`
 *     (null if the field is not an example), and `classical`; of a text `model`, `version`, `input`, `text` and `tokens`.
 */
export function program(language, request) {
  if (request.tokens) return language === "curl" ? curlText(request) : pythonText(request);
  return language === "curl" ? curl(request) : python(request);
}

function curl(request) {
  const { model, version, input, output, points, seed } = request;
  const key = curlKey();
  const post = (path, file) =>
    `curl${key} --data-binary @${input}.npy -H 'Content-Type: application/x-npy' \\\n  '${address(path)}' -o ${file}.npy`;
  const fetched = `curl${key} -H 'Accept: application/x-npy' \\\n  '${address(paths.example(model, seed, points))}' -o ${input}.npy`;
  return [
    ...(seed === null ? [`# ${input}.npy: “Download input”`] : [fetched]),
    post(paths.predict(model, version), output),
    ...(request.classical ? [post(paths.reference(model), "classical")] : []),
  ].join("\n");
}

function curlText({ model, version, input, tokens }) {
  const body = JSON.stringify({ inputs: { [input]: tokens } });
  return `curl${curlKey()} -H 'Content-Type: application/json' \\\n  -d '${body}' \\\n  '${address(paths.predict(model, version))}'`;
}

function pythonText({ model, version, text }) {
  const which = version ? `, version=${version}` : "";
  return `${imports()}from petrov_client import Client

with ${client()} as petrov:
    model = petrov.model("${model}")
    tokens = model.encode(${JSON.stringify(text)})
    print(model.decode(petrov.predict("${model}", tokens${which})))`;
}

function curlKey() {
  return hasKey() ? ` -H "Authorization: Bearer $PETROV_API_KEY"` : "";
}

function imports() {
  return hasKey() ? "import os\n\n" : "";
}

function client() {
  const key = hasKey() ? `, api_key=os.environ["PETROV_API_KEY"]` : "";
  return `Client("${address(".").replace(/\/$/, "")}"${key})`;
}

function python({ model, version, input, output }) {
  const which = version ? `, version=${version}` : "";
  return `${imports()}import numpy as np
from petrov_client import Client

with ${client()} as petrov:
    ${output} = petrov.predict("${model}", np.load("${input}.npy")${which})
np.save("${output}.npy", ${output})`;
}
