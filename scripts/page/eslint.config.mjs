// The page's scripts are one script in the end (nki/explorer/assets.py puts them together in order), so that each may
// use what the others declare.
import { readdirSync, readFileSync } from "node:fs";
import js from "@eslint/js";
import globals from "globals";

const folder = new URL("../../src/nki/explorer/static/", import.meta.url);
const declared = {};
for (const name of readdirSync(folder).filter((file) => file.endsWith(".js"))) {
  const text = readFileSync(new URL(name, folder), "utf8");
  for (const [, word] of text.matchAll(/^(?:async )?(?:function|class|const|let) (\w+)/gm)) declared[word] = "readonly";
}

export default [
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    languageOptions: { ecmaVersion: 2025, sourceType: "script", globals: { ...globals.browser, ...declared } },
    rules: {
      eqeqeq: "error",
      "no-redeclare": ["error", { builtinGlobals: false }],
      "no-unused-vars": ["error", { vars: "local", argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "names in a profile are text: use el()" },
        { property: "outerHTML", message: "names in a profile are text: use el()" },
        { property: "insertAdjacentHTML", message: "names in a profile are text: use el()" },
      ],
      "no-restricted-globals": ["error", "localStorage", "sessionStorage"],
      "no-constant-binary-expression": "error",
      "no-self-compare": "error",
      "no-unmodified-loop-condition": "error",
      "default-case-last": "error",
      strict: ["error", "global"],
    },
  },
];
