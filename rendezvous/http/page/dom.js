"use strict";
// What the parts of the page share: elements with text, and commands to copy.

const by = (id) => document.getElementById(id);

function make(tag, text, tone) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (tone) element.className = tone;
  return element;
}
// What has not changed is left alone: screen readers and selections stay where they are.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
// For screen readers. What is said at about the same time is said together: a later text would silence the earlier one.
const SAID_TOGETHER_MS = 300;
let unsaid = [];
function announce(text) {
  if (!unsaid.length) setTimeout(() => {
    by("announce").textContent = unsaid.join("; ");
    unsaid = [];
  }, SAID_TOGETHER_MS);
  unsaid.push(text);
}

// --- commands, to copy ---

function copy(text, button) {
  const done = () => {
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 2000);
  };
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(done);
  // On plain http there is no clipboard for pages, but what is selected can be copied.
  const field = make("textarea", text, "out");
  (button.closest("dialog") ?? document.body).append(field);
  field.select();
  if (document.execCommand("copy")) done();
  field.remove();
  button.focus();
}
function commandParts(text) {
  const button = make("button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy ${text}`);
  button.addEventListener("click", () => copy(text, button));
  return [make("code", text), " ", button];
}
function setCommand(code, text) {
  const place = code.parentElement;
  place.hidden = text === "";
  if (code.textContent === text && place.querySelector("button")) return;
  const parts = commandParts(text);
  parts[0].id = code.id;
  place.replaceChildren(...parts);
}
