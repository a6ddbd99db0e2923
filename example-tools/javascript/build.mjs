// Builds the component: `node build.mjs [OUTPUT]`.

import { readFile, rename, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { argv, env } from 'node:process';
import { fileURLToPath } from 'node:url';
import { componentize } from '@bytecodealliance/componentize-js';

// `npm run` starts scripts in the package's folder; a relative output is relative to the caller's.
const output = resolve(env.INIT_CWD ?? '.', argv[2] ?? 'words.wasm');

// Given as text and not as a path, since the path of the source would be kept in the component.
const source = await readFile(new URL('words.js', import.meta.url), 'utf8');
const { component } = await componentize(source, {
  sourceName: 'words.js',
  witPath: fileURLToPath(new URL('wit', import.meta.url)),
  worldName: 'words',
});

await writeFile(`${output}.part`, component);
await rename(`${output}.part`, output);
