// Filters the cards of the index by words, paper, kind of claim and verdict. The address holds the choice, so that it can be
// copied and bookmarked, and the reader's way back leads to it.
"use strict";

(() => {
  const form = document.querySelector(".filter");
  const cards = [...document.querySelectorAll(".card")];
  const [clear, found] = [form.querySelector("[type=reset]"), form.querySelector("output")];
  const names = ["words", "paper", "kind", "outcome"];
  const field = (name) => form.elements.namedItem(name);

  const fits = ({ words, paper, outcomes }, asked) =>
    asked.words.toLowerCase().split(/\s+/).every((word) => words.includes(word)) &&
    (!asked.paper || paper === asked.paper) &&
    ((!asked.kind && !asked.outcome) ||
      outcomes.split(" ").some((one) => {
        const [kind, outcome] = one.split("/");
        return kind && (!asked.kind || kind === asked.kind) && (!asked.outcome || outcome === asked.outcome);
      }));

  const filter = () => {
    const asked = Object.fromEntries(names.map((name) => [name, field(name).value]));
    const asks = names.some((name) => asked[name].trim());
    for (const card of cards) card.hidden = !fits(card.dataset, asked);
    for (const paper of document.querySelectorAll(".paper")) paper.hidden = !paper.querySelector(".card:not([hidden])");
    const shown = cards.filter((card) => !card.hidden).length;
    found.textContent = asks ? (shown ? `${shown} of ${cards.length}` : "Nothing matches.") : "";
    clear.hidden = !asks;
    return asked;
  };

  const read = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const name of names) {
      field(name).value = asked.get(name) ?? "";
      if (field(name).selectedIndex === -1) field(name).value = ""; // an address of another gallery
    }
    filter();
  };

  const write = () => {
    const asked = Object.entries(filter()).filter(([, value]) => value.trim());
    history.replaceState(null, "", asked.length ? `#${new URLSearchParams(asked)}` : location.pathname + location.search);
  };

  form.addEventListener("input", write);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(write)); // once the fields are empty
  addEventListener("hashchange", read);
  addEventListener("pageshow", read); // a browser that goes back restores fields, too
  form.hidden = !cards.length;
})();
