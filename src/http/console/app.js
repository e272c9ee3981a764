// Two comforts, and nothing that the pages need: times in the viewer's own zone, and pages that keep themselves up to
// date. Without this script all that is missing is these two.
(function () {
  "use strict";

  const EVERY_MS = 5000;
  const local = new Intl.DateTimeFormat(undefined, {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });

  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  // UTC stays at hand: as the title, and in the datetime attribute.
  function localTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = (time.hasAttribute("data-clock") ? clock : local).format(at);
    }
  }

  function sayZone() {
    const zone = document.getElementById("zone");
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (zone && name) zone.textContent = "Times are in your zone (" + name + "); hover over one for UTC.";
  }

  // Whoever is filling something in is not to be disturbed.
  function isBusy(main) {
    const at = document.activeElement;
    if (at && main.contains(at) && at.matches("input, textarea, select")) return true;
    if (!document.getSelection().isCollapsed) return true;
    for (const field of main.querySelectorAll("input, textarea, select")) {
      if (field.type === "hidden") continue;
      if (field.type === "checkbox" && field.checked !== field.defaultChecked) return true;
      if (field.tagName === "SELECT") {
        const options = Array.from(field.options);
        const was = options.findIndex((option) => option.defaultSelected);
        if (field.selectedIndex !== Math.max(was, 0)) return true;
      } else if (field.type !== "checkbox" && field.value !== field.defaultValue) return true;
    }
    return false;
  }

  // The part of the page that a focused element can be found by again.
  function nameOf(element) {
    if (!element || !element.tagName) return null;
    if (element.id) return "#" + CSS.escape(element.id);
    const href = element.getAttribute("href");
    if (href) return 'a[href="' + CSS.escape(href) + '"]';
    const parent = element.parentElement;
    if (element.tagName === "SUMMARY" && parent && parent.id) return "#" + CSS.escape(parent.id) + " > summary";
    return null;
  }

  let shown = null;

  async function refresh() {
    const main = document.getElementById("main");
    if (document.visibilityState !== "visible" || isBusy(main)) return;
    const answer = await fetch(location.href, {
      headers: { "X-Onceward-Refresh": "1" }, credentials: "same-origin", redirect: "follow", cache: "no-store",
    });
    // Logged out meanwhile: the login is where the page is now.
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.reload(); return; }
    if (!answer.ok) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = next.getElementById("main");
    if (!fresh || isBusy(main)) return;
    // What was said once after a change is not said again and again.
    for (const said of fresh.querySelectorAll(".said")) said.remove();
    if (shown === fresh.innerHTML) return;
    shown = fresh.innerHTML;
    const focused = main.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const details = new Map();
    for (const d of main.querySelectorAll("details[id]")) details.set(d.id, d.open);
    const kept = Array.from(main.querySelectorAll(":scope > .said"));
    const scrolled = Array.from(main.querySelectorAll(".scroll")).map((box) => box.scrollLeft);
    localTimes(fresh);
    main.replaceChildren(...kept, ...fresh.childNodes);
    for (const d of main.querySelectorAll("details[id]")) if (details.has(d.id)) d.open = details.get(d.id);
    Array.from(main.querySelectorAll(".scroll")).forEach((box, i) => { box.scrollLeft = scrolled[i] || 0; });
    const again = focused && main.querySelector(focused);
    if (again) again.focus({ preventScroll: true });
    document.title = next.title;
    const menu = next.querySelector("header.bar nav");
    const here = document.querySelector("header.bar nav");
    if (menu && here && !here.contains(document.activeElement)) here.replaceWith(menu);
  }

  localTimes(document);
  sayZone();
  // A link to one action of a job opens it.
  const meant = location.hash && document.getElementById(location.hash.slice(1));
  if (meant && meant.tagName === "DETAILS") meant.open = true;

  // Only pages that were read are read again: what a form has answered stays until somebody goes on.
  const main = document.getElementById("main");
  if (main && main.hasAttribute("data-live")) {
    const fresh = document.getElementById("fresh");
    if (fresh) fresh.hidden = false;
    setInterval(() => { refresh().catch(() => {}); }, EVERY_MS);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") refresh().catch(() => {});
    });
  }
})();
