// The browser, and the pages.

import { createRequire } from "node:module";
import { TOKEN } from "./scene.mjs";

// The two packages are installed under target/, not beside the tests.
const require = createRequire(new URL("../../target/browser/", import.meta.url));
export const AXE = require.resolve("axe-core/axe.min.js");
const { chromium } = require("playwright-core");

export function browser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

export async function logIn(page, scene) {
  await page.goto(scene.base + "/login");
  await page.getByLabel("Token").fill(TOKEN);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL(scene.base + "/");
}

// Name and path of every page that a person can come to.
export async function pages(scene) {
  const id = (key) => scene.cli("show", key).id;
  const parked = id("payout:BAD-7");
  return [
    ["today", "/"],
    ["today-30d", "/?span=30d"],
    ["doubt", "/doubt"],
    ["parked", "/parked"],
    ["parked-replay", `/parked/replay?reason=rejected&which=all`],
    ["jobs", "/jobs"],
    ["jobs-none", "/jobs?q=nothing-like-this"],
    ["job-parked", `/job/${parked}`],
    ["job-doubt", `/job/${id("cash:LOST-1")}`],
    ["job-asked", `/job/${id("payout:LATE-1")}`],
    ["job-external", `/job/${id("charge:C-1")}`],
    ["job-done", `/job/${id("payout:INV-1001")}`],
    ["providers", "/providers"],
    ["groups", "/groups"],
    ["group", "/groups?name=account%3A9"],
    ["audit", "/audit"],
    ["audit-events", "/audit?of=events"],
    ["missing", "/job/99999999"],
  ];
}
