// Runs a WebAssembly program of the target wasm32-wasip1 under Node: `node wasi.mjs PROGRAM ARGS`.
// The program sees the files of this machine under their own names, since tests read their data by its full path.

import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [program, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [program, ...args],
  env: process.env,
  preopens: { "/": "/" },
  returnOnExit: true,
});
const module = await WebAssembly.compile(await readFile(program));
const imports = { wasi_snapshot_preview1: wasi.wasiImport };
process.exitCode = wasi.start(await WebAssembly.instantiate(module, imports));
