import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { include: ["{sdk,app,console,report}/test/**/*.test.ts"], environment: "node" },
});
