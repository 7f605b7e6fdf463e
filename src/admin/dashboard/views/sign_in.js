// Signing in: the token is checked by a request that needs it, and kept for this tab only.

import { ApiError, get } from "../api.js";
import { h, setText } from "../dom.js";
import { session } from "../session.js";

const CONTENTS = "Conversations, approvals and events hold what people and models wrote, so they need the admin token.";
export const NO_TOKEN = "This toolrein has no admin token, so it has no such pages. Two lines are missing: in its configuration "
  + "admin.token_env = \"TOOLREIN_ADMIN_TOKEN\", and where it starts export TOOLREIN_ADMIN_TOKEN=$(openssl rand -hex 16). At a "
  + "terminal toolrein makes a token itself and prints the address with it.";

async function check(field, message) {
  session.signIn(field.value);
  try {
    await get("api/stops");
    return true;
  } catch (error) {
    session.signOut();
    const kind = error instanceof ApiError ? error.kind : "";
    const text = { unauthorized: "This is not the token.", absent: NO_TOKEN }[kind] ?? error.message;
    setText(message, text);
    field.setAttribute("aria-invalid", "true");
    field.focus();
    return false;
  }
}

export const signIn = {
  name: "sign-in",
  title: "Sign in",
  create(context, route) {
    const back = route.name === "sign-in" ? "#/overview" : location.hash;
    const field = h("input", { type: "password", id: "token", name: "token", required: true, autocomplete: "off", spellcheck: "false",
      "aria-describedby": "token-message" });
    const message = h("p", { class: "problem", id: "token-message", role: "alert" });
    const onsubmit = async (event) => {
      event.preventDefault();
      if (await check(field, message)) context.signedIn(back);
    };
    const element = h("div", { class: "state" },
      h("p", { class: "state-title" }, "Sign in to see this"),
      h("p", {}, route.why ?? CONTENTS),
      h("form", { class: "sign-in", onsubmit }, h("label", { for: "token" }, "Admin token"), field,
        h("button", { type: "submit", class: "primary" }, "Sign in")),
      message,
      h("p", { class: "note" }, "The token stays in this tab and is forgotten when the tab is closed."));
    return { element, show: () => {} };
  },
};
