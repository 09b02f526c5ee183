import { defineConfig } from "vite";

// Served as /console beside the call page, under the same page policy: nothing is inlined.
export default defineConfig({
  // As of the call page.
  base: "./",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: "console.html" },
  },
  define: { global: "globalThis" },
  server: { proxy: { "/v1": { target: "http://127.0.0.1:7880" } } },
});
