/** Shows errors in a banner and the readiness of the service in the header, and reports when a lost service returns. */

import { Problem, readiness } from "./api.js";

const [CALM, LOST] = [10_000, 1_000]; // milliseconds between two checks
const AGAIN = "The page continues by itself.";
const KEY = "Enter a key in the field “API key” and press Enter.";

export class Status {
  #timer = 0;
  #lost = false;
  #stays = false; // whether what is shown is a note

  /**
   * @param {() => void} back Called when the service is available again.
   * @param {() => string} model Returns the name of the present model.
   */
  constructor(back, model) {
    this.back = back;
    this.model = model;
    this.banner = document.getElementById("banner");
    document.getElementById("banner-close").addEventListener("click", () => this.clear(true));
  }

  /**
   * Show an error; if the service is lost, check until it is back.
   *
   * @param {Error} error
   * @param {(text: string) => string} inWords Puts the names on the screen in place of those on the wire.
   * @param {string} next What the page does about it, where that does not follow from the error.
   */
  show(error, inWords = (text) => text, next = "") {
    const known = error instanceof Problem;
    const passing = known && error.passing;
    const advice = passing ? AGAIN : error.wantsKey ? KEY : next;
    this.#say(known ? error.title : "Error", inWords(error.message) + (advice && `. ${advice}`));
    this.#stays = false;
    if (passing) this.#lose();
    else this.banner.dataset.kind = "fault";
  }

  /** Show a message that stays until the user goes on: it is about the page and not about a response. */
  note(text) {
    this.show(new Error(text));
    this.#stays = true;
  }

  /** Hide the banner: the service responded or, with `any`, the user goes on. */
  clear(any = false) {
    this.#lost = false;
    if (this.#stays && !any) return;
    this.#stays = false;
    this.banner.hidden = true;
  }

  async watch() {
    clearTimeout(this.#timer);
    if (this.#lost || !document.hidden) this.#seen(await readiness());
    this.#timer = setTimeout(() => this.watch(), this.#lost ? LOST : CALM);
  }

  #seen({ ready, reason, missing = [] }) {
    this.#light(ready, ready ? "ready" : reason);
    const concerns = !ready && (missing.length === 0 || missing.includes(this.model()));
    if (concerns && !this.#lost) {
      this.#say("The service is not ready", `${capital(reason)}. ${AGAIN}`);
      this.#lost = true;
      this.banner.dataset.kind = "lost";
    } else if (this.#lost && !concerns) this.back(); // which clears the banner on success
  }

  #lose() {
    this.banner.dataset.kind = "lost";
    if (this.#lost) return;
    this.#lost = true;
    this.#light(false, "not ready");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.watch(), LOST);
  }

  #light(ready, text) {
    const light = document.getElementById("state");
    light.dataset.state = ready ? "ready" : "waiting";
    light.lastElementChild.textContent = text;
  }

  #say(title, detail) {
    const texts = { "banner-title": `${title}.`, "banner-detail": detail };
    for (const [id, text] of Object.entries(texts)) {
      const element = document.getElementById(id);
      if (element.textContent !== text) element.textContent = text; // an unchanged text is not announced again
    }
    this.banner.hidden = false;
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
