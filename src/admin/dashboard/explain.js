// The page of `toolrein explain --html` in a tab of its own. The server wants the token in a header, so the page is
// fetched here and rebuilt in an empty tab. That tab has this page's policy: no script runs in it. Styles are taken out
// of the text before it is parsed, since the policy forbids them there, and set through the CSS object model.

import { conversationPath, getText } from "./api.js";

/** Opens the explanation of a conversation; throws an `ApiError`, or an `Error` where the browser opens no tab. */
export async function openExplanation(id) {
  const tab = window.open("", "_blank");
  if (!tab) throw new Error("The browser did not open a new tab. Allow pop-ups for this page.");
  tab.document.title = "Loading";
  tab.document.body.textContent = "Loading the explanation.";
  try {
    fill(tab, await getText(conversationPath(id, "/explain")));
  } catch (error) {
    tab.close();
    throw error;
  }
}

function fill(tab, text) {
  const sheets = [];
  const bare = text
    .replace(/<style[^>]*>([^]*?)<\/style>/gi, (_, css) => (sheets.push(css), ""))
    .replace(/(<[^<>]*?)\sstyle="/gi, '$1 data-style="');
  const parsed = new DOMParser().parseFromString(bare, "text/html");
  for (const element of parsed.querySelectorAll("script, style, iframe, object, embed, base, link, meta[http-equiv]")) element.remove();
  // An empty tab resolves addresses against the page that opened it, so links within the explanation name the tab's own.
  for (const link of parsed.querySelectorAll('a[href^="#"]')) link.setAttribute("href", `${tab.location.href}${link.getAttribute("href")}`);
  const page = tab.document;
  page.replaceChild(page.adoptNode(parsed.documentElement), page.documentElement);
  page.adoptedStyleSheets = sheets.map((css) => {
    const sheet = new tab.CSSStyleSheet();
    sheet.replaceSync(css);
    return sheet;
  });
  for (const element of page.querySelectorAll("[data-style]")) element.style.cssText = element.dataset.style;
}
