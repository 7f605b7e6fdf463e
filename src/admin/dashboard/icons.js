// Small line drawings for the list of views. They repeat what the text beside them says, so they are hidden from readers.

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  tools: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
  limits: "M4 17a8 8 0 1 1 16 0M12 17l4-5",
  conversations: "M4 5h16v11H10l-4 4v-4H4z",
  approvals: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6zM8.5 12l2.5 2.5 4.5-5",
  savings: "M4 6l6 6 4-4 6 8M20 11v5h-5",
  health: "M3 12h4l2.5-6 4.5 12 2.5-6H21",
};

/** The icon of a view. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", PATHS[name]);
  drawing.append(path);
  return drawing;
}
