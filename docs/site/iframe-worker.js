// Search in pages that are opened from a folder: browsers start no Worker from file:, so the script runs in a hidden frame.
// The theme would fetch such a replacement from another host.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.inner.document.write(
        `<body><script>postMessage = (data) => parent.postMessage(data, "*")<\/script><script src="${url}"><\/script>`,
      );
      this.inner.document.close();
      this.loaded = new Promise((resolve) => {
        this.inner.onload = resolve; // after write, which removes listeners
      });
      addEventListener("message", (event) => {
        if (event.source === this.inner) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
