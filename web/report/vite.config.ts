import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file that loads nothing: it is mailed around and opened from disk.
export default defineConfig({
  plugins: [viteSingleFile()],
  build: { target: "es2022", modulePreload: { polyfill: false } },
});
