// The npm SocketCluster server, for `moim study sockets --beside socketcluster=scripts/socketcluster.mjs`: one process with the
// package's own settings (engine ws, no batching of what it sends, no compression), which answers `ping` as moim does.
// Argument: the port on 127.0.0.1. `GET /healthz` tells the versions.

import { createServer } from "node:http";
import { createRequire } from "node:module";

process.env.NODE_ENV = "production";
const require = createRequire(new URL("../web/package.json", import.meta.url));
const { attach } = require("socketcluster-server");
const { version } = require("socketcluster-server/package.json");

const http = createServer((request, response) => {
  const known = request.url === "/healthz";
  response.writeHead(known ? 200 : 404, { Connection: "close" });
  response.end(known ? `${version}, node ${process.versions.node}` : "");
});
const server = attach(http);
let count = 0;

async function answerEvents(socket) {
  for await (const _ of socket.receiver("ping")) socket.transmit("pong", { count: ++count });
}

async function answerCalls(socket) {
  for await (const request of socket.procedure("ping")) request.end({ count: ++count });
}

(async () => {
  for await (const { socket } of server.listener("connection")) {
    answerEvents(socket);
    answerCalls(socket);
  }
})();

http.listen(Number(process.argv[2]), "127.0.0.1");
