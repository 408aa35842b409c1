"use strict";
// The box at the pointer, and the tabs of the lower half.

/** The box at the pointer. */
class Tip {
  constructor() {
    this.node = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    document.body.append(this.node);
  }

  /**
   * @param {MouseEvent} event
   * @param {string[]} text a title and lines
   */
  show(event, text) {
    const [title, ...lines] = text;
    this.node.replaceChildren(el("b", {}, title), ...lines.map((line) => el("div", {}, line)));
    this.node.hidden = false;
    const { offsetWidth: wide, offsetHeight: high } = this.node;
    this.node.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8)) + "px";
    this.node.style.top =
      (event.clientY + 18 + high > innerHeight ? Math.max(4, event.clientY - high - 10) : event.clientY + 18) + "px";
  }

  hide() {
    this.node.hidden = true;
  }
}

class Tabs {
  constructor(views, change) {
    this.views = views; // [[key, title, make]]
    this.made = new Map();
    this.scope = 0; // number of the profile
    this.change = change;
    this.bar = el(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "Views" },
      views.map(([key, title]) =>
        el(
          "button",
          {
            type: "button",
            role: "tab",
            id: "tab-" + key,
            "aria-controls": "panel",
            on: { click: () => this.open(key), keydown: (event) => this.key(event) },
          },
          title,
        ),
      ),
    );
    this.panel = el("div", { class: "panel", role: "tabpanel", id: "panel" });
  }

  open(key) {
    const view = this.views.find(([name]) => name === key) || this.views[0];
    this.current = view[0];
    for (const tab of this.buttons()) {
      const mine = tab.id === "tab-" + this.current;
      tab.setAttribute("aria-selected", String(mine));
      tab.tabIndex = mine ? 0 : -1;
      if (mine) {
        this.panel.setAttribute("aria-labelledby", tab.id);
        tab.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    }
    this.panel.replaceChildren(this.get(this.current));
    this.panel.scrollTop = 0;
    this.change(this.current);
  }

  buttons() {
    return /** @type {HTMLElement[]} */ ([...this.bar.children]);
  }

  /** The node of a view, made when it is first needed; each profile has its own. */
  get(key) {
    const name = this.scope + "/" + key;
    if (!this.made.has(name)) this.made.set(name, this.views.find(([view]) => view === key)[2]());
    return this.made.get(name);
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = (this.views.findIndex(([name]) => name === this.current) + by + this.views.length) % this.views.length;
    this.open(this.views[at][0]);
    this.buttons()[at].focus();
  }
}
