// The shared worker: one stream for all tabs of a browser.

import { Follower } from "./follower.js";

const ports = new Set();
let follower = null;

function tellAll(message) {
  for (const port of ports) port.postMessage(message);
}

function begin(session) {
  follower?.stop();
  follower = new Follower(session, tellAll);
  follower.start();
}

function leave(port) {
  ports.delete(port);
  if (ports.size) return;
  follower?.stop();
  follower = null;
}

self.addEventListener("connect", ({ ports: [port] }) => {
  port.addEventListener("message", ({ data }) => {
    if (data.leave) leave(port);
    if (data.join) {
      ports.add(port);
      // A tab that has signed in begins anew for all: they share its cookie.
      if (follower?.session !== data.join || follower.connection.state === "out") begin(data.join);
      port.postMessage(follower.whole());
    }
  });
  port.start();
});
