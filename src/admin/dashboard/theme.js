// The colour scheme: the system's unless the person chose one. Runs before the first paint, so that nothing flashes.
"use strict";

window.toolreinScheme = {
  key: "toolrein.scheme",
  get() {
    try {
      return localStorage.getItem(this.key) || "system";
    } catch {
      return "system";
    }
  },
  set(scheme) {
    document.documentElement.dataset.scheme = scheme;
    try {
      localStorage.setItem(this.key, scheme);
    } catch {
      // A browser that keeps nothing still shows the choice until the page is left.
    }
  },
};
document.documentElement.dataset.scheme = window.toolreinScheme.get();
