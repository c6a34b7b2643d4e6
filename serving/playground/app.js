/** The page: it sends what the user draws or writes to the service, and shows the responses as pictures. */

import * as api from "./api.js";
import * as cards from "./card.js";
import { darkness } from "./colours.js";
import { read, save } from "./files.js";
import { follow, load, partner, setForward } from "./models.js";
import { isPlain } from "./program.js";
import { changed, failed, openKey, textChanged } from "./requests.js";
import { chooseGrid, drawExample, fetched, stepSample } from "./samples.js";
import { fieldRequest, panels, play, playing, readAll, showProgram, showResults } from "./show.js";
import { at, inputs, outputs, reader, solver, state, status, times } from "./state.js";
import { takesText } from "./vocabulary.js";

/** Show an input of the user; one that cannot be read, or that the service refuses, leaves the present input. */
function upload(files, asReading) {
  const refused = (error) => status.show(new Error(`The file “${files[0].name}” cannot be drawn: ${cards.inWords(inputs.card, error.message)}`));
  return fetched((signal) => sampleIn(files, asReading, signal), (sample) => inputs.adopt(sample), (error) => (error.wantsKey ? failed(error) : refused(error)));
}

async function sampleIn(files, asReading, signal) {
  const { model } = state;
  const { card } = asReading ? model : inputs;
  const found = await read(files, card);
  signal.throwIfAborted(); // another model or input was chosen meanwhile
  if (asReading && state.forward) {
    const [{ name }] = card.inputs;
    const reading = found.field ?? found.arrays[name];
    if (!reading) throw new Error(`it holds ${Object.keys(found.arrays).join(", ") || "nothing"}; expected ${name}.`);
    if (reading.shape.length !== cards.dimensions(card)) throw new Error(`it has shape (${reading.shape}); expected one field of ${name}.`);
    await checkAccepted(model.name, { [name]: reading }, signal);
    setForward(null);
  }
  const sample = found.arrays ? inputs.read(found.arrays) : inputs.replaced(found.field.shape, found.field.data);
  if (!asReading) await checkAccepted((state.forward ?? card).model, inputs.requestOf(sample), signal);
  return sample;
}

/** Have the service check an input before it replaces the present one: what it refuses is an error. */
async function checkAccepted(name, request, signal) {
  try {
    await api.predict(name, null, request, signal);
  } catch (error) {
    if (!error.passing && !error.busy) throw error;
  }
}

function saveInput() {
  const { name, card } = state.model;
  if (takesText(card)) return reader.tokens && save({ [card.inputs[0].name]: reader.tokens }, name, state.language);
  const request = state.forward ? state.result?.request : inputs.request();
  if (!request) return;
  const isUsual = inputs.hasUsualNumbers && !cards.takesGrid(card);
  const numbers = new Set(cards.parameters(inputs.card).map((one) => one.name));
  const sent = Object.entries(request).filter(([key]) => !isUsual || state.forward || !numbers.has(key));
  save(Object.fromEntries(sent), name, state.language, !isPlain(fieldRequest()));
}

function saveOutput() {
  const { model, labelled, result } = state;
  save(labelled ? { [model.card.outputs[0].name]: labelled.output } : result.outputs, `${model.name}_output`, state.language);
}

function chooseLanguage(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    other.setAttribute("aria-selected", other === tab);
    other.tabIndex = other === tab ? 0 : -1;
  }
  at("program").setAttribute("aria-labelledby", tab.id);
  state.language = tab.id.slice("tab-".length);
  if (state.model && (inputs.sample || takesText(state.model.card))) showProgram();
}

async function copyProgram() {
  const code = at("program").firstElementChild;
  getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    at("copy").textContent = "Copied";
  } catch {
    at("copy").textContent = "Selected"; // without HTTPS pages cannot use the clipboard
  }
  setTimeout(() => (at("copy").textContent = "Copy"), 1500);
}

// Wiring

function wire() {
  const on = (id, type, act) => at(id).addEventListener(type, act);
  on("skip", "click", (event) => {
    event.preventDefault(); // the address is that of a model
    at(at("stage").hidden ? "sequence" : "stage").focus();
  });
  on("model", "change", () => (location.hash = at("model").value));
  addEventListener("hashchange", follow);
  on("version", "change", () => {
    state.version = Number(at("version").value) || null;
    takesText(state.model.card) ? textChanged() : changed();
  });
  on("grid", "change", () => {
    const chosen = cards.grids(state.model.card).find((shape) => cards.gridText(shape) === at("grid").value);
    chosen ? chooseGrid(chosen) : (at("points-label").hidden = false);
  });
  on("points", "change", () => at("points").reportValidity() && chooseGrid(cards.gridOf(state.model.card, Number(at("points").value))));
  on("sample", "click", () => stepSample(0));
  on("sample-before", "click", () => stepSample(-1));
  on("sample-after", "click", () => stepSample(1));
  on("random", "click", () => {
    if (!at("seed").reportValidity()) return;
    at("seed").value = inputs.sample?.origin.kind === "example" ? Number(at("seed").value) + 1 : at("seed").value;
    redraw();
  });
  on("seed", "change", () => at("seed").reportValidity() && redraw());
  on("upload", "click", () => at("file").click());
  on("upload-reading", "click", () => at("file-reading").click());
  for (const id of ["file", "file-reading"])
    on(id, "change", () => {
      const files = [...at(id).files];
      if (files.length) upload(files, id === "file-reading");
      at(id).value = "";
    });
  on("noise", "input", () => {
    at("noise-shown").textContent = `${at("noise").value} %`;
    changed();
  });
  on("auto", "change", () => at("auto").checked && state.classical?.revision !== state.revision && solver.schedule());
  on("solve", "click", () => solver.restart());
  on("frame", "input", () => {
    play(false);
    showResults();
  });
  on("play", "click", () => play(!playing));
  on("key-open", "click", () => openKey(at("key-form").hidden));
  on("key-form", "submit", (event) => event.preventDefault());
  on("key", "change", () => {
    api.useKey(at("key").value.trim());
    load();
  });
  on("copy", "click", copyProgram);
  on("download-input", "click", saveInput);
  on("download-output", "click", saveOutput);
  wireTabs();
  wirePictures();
}

function wireTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => chooseLanguage(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length];
      chooseLanguage(next);
      next.focus();
    });
  });
}

function wirePictures() {
  at("stage").addEventListener("pointermove", ({ target, clientX, clientY }) => {
    const panel = panels().find(({ figure }) => figure.querySelector(".view").contains(target));
    readAll(panel?.field ? panel.view.position({ clientX, clientY }) : null);
  });
  at("stage").addEventListener("pointerleave", () => readAll(null));
  addEventListener("keydown", (event) => {
    const isText = event.target.matches("input:not([type=range], [type=checkbox]), textarea"); // which has an undo of its own
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !isText && !at("stage").hidden) {
      event.preventDefault();
      inputs.undo();
    }
  });
  state.dark = darkness((dark) => {
    inputs.dark = state.dark = dark;
    outputs.restyle(dark);
    times.dark = dark;
    for (const drawing of inputs.sample ? inputs.drawings : []) drawing.show();
    if (state.result) showResults();
  });
}

/** Draw a field of the training distribution; after a measurement, its truth is drawn again. */
function redraw() {
  const { grid } = inputs;
  const again = partner() !== state.forward;
  if (again) setForward(partner());
  else if (inputs.sample) inputs.remember();
  drawExample(again || !grid ? cards.firstGrid(state.model.card) : grid);
}

wire();
load();
status.watch();
