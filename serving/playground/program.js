/** What was just asked in, the same as a program out: with curl, and with the Python client. */

import { address, hasKey, paths } from "./api.js";

/**
 * @param {"curl" | "python"} language
 * @param {object} asked `model`, `version` (null for the newest), `input`, `output` (names), `points` per axis, `seed`
 *     (null if the field is not an example), and `classical`.
 */
export function program(language, asked) {
  return language === "curl" ? curl(asked) : python(asked);
}

function curl(asked) {
  const { model, version, input, output, points, seed } = asked;
  const key = hasKey() ? ` -H "Authorization: Bearer $PETROV_API_KEY"` : "";
  const post = (path, file) =>
    `curl${key} --data-binary @${input}.npy -H 'Content-Type: application/x-npy' \\\n  '${address(path)}' -o ${file}.npy`;
  const fetched = `curl${key} -H 'Accept: application/x-npy' \\\n  '${address(paths.example(model, seed, points))}' -o ${input}.npy`;
  return [
    ...(seed === null ? [`# ${input}.npy: “Download input”`] : [fetched]),
    post(paths.predict(model, version), output),
    ...(asked.classical ? [post(paths.reference(model), "classical")] : []),
  ].join("\n");
}

function python({ model, version, input, output }) {
  const key = hasKey() ? `, api_key=os.environ["PETROV_API_KEY"]` : "";
  const which = version ? `, version=${version}` : "";
  return `${key && "import os\n\n"}import numpy as np
from petrov_client import Client

with Client("${address(".").replace(/\/$/, "")}"${key}) as petrov:
    ${output} = petrov.predict("${model}", np.load("${input}.npy")${which})
np.save("${output}.npy", ${output})`;
}
