import { defineConfig } from "vite";

// The server's page policy forbids inline scripts and data: addresses: nothing is inlined here.
export default defineConfig({
  // The server writes its base path into the page in place of "./".
  base: "./",
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  define: { global: "globalThis" },
  server: { proxy: { "/socketcluster": { target: "http://127.0.0.1:7880", ws: true } } },
});
