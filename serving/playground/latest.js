/** Questions faster than answers in, one running at a time out: when it is done the newest waiting question is next. */

export class Latest {
  #controller = null;
  #waiting = null;
  #timer = 0;

  /**
   * @param {(signal: AbortSignal) => Promise<void>} work Asks the question as it stands when it is called.
   * @param {(error: Error) => void} failed Told of anything but an abort.
   */
  constructor(work, failed) {
    this.work = work;
    this.failed = failed;
  }

  /** Ask soon; after `pause` milliseconds without another call. */
  ask(pause = 0) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#start(), pause);
  }

  /** Abort what runs and forget what waits. */
  cancel() {
    clearTimeout(this.#timer);
    this.#waiting = null;
    this.#controller?.abort();
    this.#controller = null;
  }

  /** Abort what runs and ask anew. */
  restart(pause = 0) {
    this.cancel();
    this.ask(pause);
  }

  async #start() {
    if (this.#controller) {
      this.#waiting = true;
      return;
    }
    const controller = (this.#controller = new AbortController());
    try {
      await this.work(controller.signal);
    } catch (error) {
      if (!controller.signal.aborted) this.failed(error);
    } finally {
      if (this.#controller === controller) {
        this.#controller = null;
        if (this.#waiting) this.ask();
        this.#waiting = null;
      }
    }
  }
}
