/** Runs work one at a time: requests that arrive meanwhile collapse into one, which runs next. */

export class Scheduler {
  #controller = null;
  #waiting = null;
  #timer = 0;

  /**
   * @param {(signal: AbortSignal) => Promise<void>} work Does the work for the state at the time of the call.
   * @param {(error: Error) => void} failed Called with any error but an abort.
   */
  constructor(work, failed) {
    this.work = work;
    this.failed = failed;
  }

  /** Run the work after `pause` milliseconds without another call. */
  schedule(pause = 0) {
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

  /** Abort what runs and schedule it again. */
  restart(pause = 0) {
    this.cancel();
    this.schedule(pause);
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
        if (this.#waiting) this.schedule();
        this.#waiting = null;
      }
    }
  }
}
