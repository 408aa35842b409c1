"use strict";
// Loads the profiles, from the page itself or from the server, and shows them.

/**
 * A part of the page that is always there.
 *
 * @param {string} id
 */
function part(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no part ${id}`);
  return found;
}

async function load(number, app) {
  if (!app) return inflate(fromBase64(part("profile-" + number).textContent));
  const answer = await fetch("api/profile/" + number);
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return inflate(new Uint8Array(await answer.arrayBuffer()));
}

async function start() {
  const root = part("app"),
    app = root.dataset.mode === "app",
    began = performance.now();
  try {
    const models = [],
      total = Number(root.dataset.count);
    let step = null;
    for (let number = 0; number < total; number++) {
      const found = decode(await load(number, app));
      if (found.step) step = found.step;
      else models.push(new Model(found, total > 1 ? `${"AB"[number]} ${found.label}` : found.label));
    }
    const page = step ? new StepPage(step) : new Page(models, app);
    root.replaceChildren(page.node);
    page.restore();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.shared.emit("theme"));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && page.searchInput && !(event.target instanceof Element && event.target.matches("input, textarea, select"))) {
        event.preventDefault();
        page.searchInput.focus();
      }
    });
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        page.loadTime = performance.now() - began;
        root.dataset.ready = "true";
      }),
    );
    Object.assign(window, { explorer: page }); // for tests and for the console
  } catch (problem) {
    root.replaceChildren(el("p", { class: "error", role: "alert" }, "The profile cannot be shown: " + problem.message));
    root.dataset.ready = "failed";
    throw problem;
  }
}

start();
