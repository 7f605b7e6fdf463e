// The admin token of this tab. It comes from the address's fragment or from the form, and leaves with the tab.

const KEY = "toolrein.token";
const NAME = "toolrein.approver";
let token = stored(KEY);

function stored(key) {
  try {
    return sessionStorage.getItem(key) || "";
  } catch {
    return "";
  }
}

function store(key, value) {
  try {
    if (value) sessionStorage.setItem(key, value);
    else sessionStorage.removeItem(key);
  } catch {
    // Without storage the token lasts until the page is left.
  }
}

export const session = {
  get token() {
    return token;
  },
  get isSignedIn() {
    return token !== "";
  },
  signIn(value) {
    token = value.trim();
    store(KEY, token);
  },
  signOut() {
    token = "";
    store(KEY, "");
  },
  get approver() {
    return stored(NAME);
  },
  set approver(name) {
    store(NAME, name.trim());
  },
};

/** Takes a token out of the address, so that it is neither shown nor kept in the history. */
export function takeTokenFromAddress() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const given = fragment.get("token");
  if (given === null) return;
  session.signIn(given);
  history.replaceState(null, "", `${location.pathname}${location.search}#/${fragment.get("view") || "overview"}`);
}
