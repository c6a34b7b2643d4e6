/** Errors and the service's readiness in, a banner and the light in the header out; tells when a lost service is back. */

import { Problem, readiness } from "./api.js";

const [CALM, LOST] = [10_000, 1_000]; // milliseconds between looks
const AGAIN = "The page goes on by itself.";
const KEY = "Put yours into the field “API key” and press Enter.";

export class Trouble {
  #timer = 0;
  #lost = false;

  /**
   * @param {() => void} back Called when the service answers again.
   * @param {() => string} asked The model that the page stands on.
   */
  constructor(back, asked) {
    this.back = back;
    this.asked = asked;
    this.banner = document.getElementById("banner");
    document.getElementById("banner-close").addEventListener("click", () => this.clear());
  }

  /** Show what went wrong; if the service went away, look for it until it is back. */
  show(error) {
    const known = error instanceof Problem;
    const passing = known && error.passing;
    const advice = passing ? AGAIN : [401, 403].includes(error.status) ? KEY : "";
    this.#say(known ? error.title : "This did not work", error.message + (advice && `. ${advice}`));
    if (passing) this.#lose();
    else this.banner.dataset.kind = "fault";
  }

  /** The service answered. */
  clear() {
    this.#lost = false;
    this.banner.hidden = true;
  }

  async watch() {
    clearTimeout(this.#timer);
    if (this.#lost || !document.hidden) this.#seen(await readiness());
    this.#timer = setTimeout(() => this.watch(), this.#lost ? LOST : CALM);
  }

  #seen({ ready, reason, missing = [] }) {
    this.#light(ready, ready ? "ready" : reason);
    const concerns = !ready && (missing.length === 0 || missing.includes(this.asked()));
    if (concerns && !this.#lost) {
      this.#say("The service is not ready", `${capital(reason)}. ${AGAIN}`);
      this.#lost = true;
      this.banner.dataset.kind = "lost";
    } else if (this.#lost && !concerns) this.back(); // which clears the banner once it is answered
  }

  #lose() {
    this.banner.dataset.kind = "lost";
    if (this.#lost) return;
    this.#lost = true;
    this.#light(false, "not ready");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.watch(), LOST);
  }

  #light(ready, words) {
    const light = document.getElementById("state");
    light.dataset.state = ready ? "ready" : "waiting";
    light.lastElementChild.textContent = words;
  }

  #say(title, detail) {
    const texts = { "banner-title": `${title}.`, "banner-detail": detail };
    for (const [id, text] of Object.entries(texts)) {
      const place = document.getElementById(id);
      if (place.textContent !== text) place.textContent = text; // the same words are not announced again
    }
    this.banner.hidden = false;
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
