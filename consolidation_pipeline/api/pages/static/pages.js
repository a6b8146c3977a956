// Keyboard shortcuts and lazy loading. Without scripts, links and forms do the same.
"use strict";

const typing = (element) => element.matches("input, textarea, select, [contenteditable]");
const byKey = (key) => document.querySelector(`[data-key="${CSS.escape(key)}"]`);

document.documentElement.classList.add("js");

document.addEventListener("keydown", (event) => {
  const field = event.target instanceof Element && typing(event.target) ? event.target : null;
  if (field) {
    if (event.key === "Escape") field.blur();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byKey("a")?.click();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const target = byKey(event.key);
  if (!target) return;
  event.preventDefault();
  target.click();
});

// Send each form once: a second key press must not decide on the next suggestion.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});

for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

const edit = document.getElementById("edit");
edit?.addEventListener("toggle", () => {
  if (!edit.open) return;
  const field = edit.querySelector("textarea");
  field.focus({ preventScroll: true });
  field.scrollIntoView({ block: "center" });
  field.setSelectionRange(field.value.length, field.value.length);
});

// A branch of the tree is loaded when it is opened. The toggle event does not bubble, so listen in the capture phase.
document.addEventListener("toggle", async (event) => {
  const branch = event.target;
  if (!branch.open || !branch.dataset.load) return;
  const address = branch.dataset.load;
  delete branch.dataset.load;
  try {
    const answer = await fetch(address);
    if (!answer.ok || answer.redirected) throw new Error(answer.statusText);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    branch.replaceChildren(branch.querySelector("summary"), ...found.body.childNodes);
  } catch {
    branch.dataset.load = address; // the link inside it still works
  }
}, true);
