/** The state of the page and its parts, which all others share. */

import { Figures } from "./figures.js";
import { Inputs } from "./inputs.js";
import { load } from "./models.js";
import { Outputs } from "./outputs.js";
import { Reader } from "./reader.js";
import { changed, failed, label, predict, solve, textChanged } from "./requests.js";
import { Scheduler } from "./scheduler.js";
import { readAll, showResults } from "./show.js";
import { Status } from "./status.js";
import { TimePictures } from "./times.js";

export const at = (id) => document.getElementById(id);

/** The state of the page; everything that is shown is derived from it. */
export const state = {
  models: [], // those that the page supports, each with its card
  leftOut: [], // the others
  model: null,
  forward: null, // the card of the model that computes the input of `model`, when the truth is drawn
  version: null, // null: the newest
  samples: null, // the number of test samples, once it is known
  revision: 0, // counts changes of the request
  solved: null, // the classical solution of the forward model, and the input that it belongs to
  result: null, // the prediction, its input, and its `revision`
  classical: null, // the classical solution, likewise
  labelled: null, // the response to a text
  language: "curl",
  dark: false,
};

export const inputs = new Inputs({ changed, moved: readAll, sliced: showResults });
export const outputs = new Outputs(at("outputs"));
export const figures = new Figures(at("numbers"));
export const times = new TimePictures(at("times"));
export const predictor = new Scheduler(predict, (error) => failed(error, predictor));
export const solver = new Scheduler(solve, (error) => failed(error, solver));
export const labeller = new Scheduler(label, (error) => failed(error, labeller));
export const reader = new Reader(at("sequence"), textChanged);
export const status = new Status(load, () => state.model?.name);
