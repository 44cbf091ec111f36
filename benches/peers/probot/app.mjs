// A Probot app that counts one kind of event. Prints its port.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { createNodeMiddleware, createProbot } from "probot";

const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs1", format: "pem" },
});
const probot = createProbot({
  overrides: { appId: 1, privateKey, secret: process.env.WEBHOOK_SECRET, logLevel: "warn" },
});

let labelled = 0;
const app = (robot) => robot.on("issues.labeled", async () => { labelled += 1; });
const middleware = await createNodeMiddleware(app, { probot, webhooksPath: "/api/github/webhooks" });
const server = createServer((request, response) => middleware(request, response, () => {
  response.statusCode = 404;
  response.end();
}));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
