// The search runs in a Worker, which browsers refuse to a page that is opened from disk. There a hidden frame
// takes its place: the worker's script runs in the frame, and messages go both ways as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      this.ready = new Promise((resolve, reject) => {
        const element = this.inside.document.createElement("script");
        element.src = script;
        element.onload = resolve;
        element.onerror = () => reject(new Error(`${script} cannot be loaded`));
        this.inside.document.head.append(element);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
