// Which view the fragment of the address names: `#/conversations?policy=loops`, `#/conversations/ID`.

/** `{ name, id, params }` of the address now. */
export function currentRoute() {
  const [path, query = ""] = splitOnce(location.hash.replace(/^#\/?/, ""), "?");
  const [name, id] = splitOnce(path, "/");
  return { name: name || "overview", id: id === undefined ? null : decoded(id), params: new URLSearchParams(query) };
}

function splitOnce(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a conversation's page. */
export function conversationLink(id) {
  return `#/conversations/${encodeURIComponent(id)}`;
}

/** The address of a view with parameters; empty ones are left out. */
export function viewLink(name, params) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(kept).toString();
  return query ? `#/${name}?${query}` : `#/${name}`;
}
