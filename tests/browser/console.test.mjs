// The console in a real browser: what a person does with it, with and without JavaScript, and that nothing that comes
// from outside is ever run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { AXE, browser, logIn, pages } from "./browser.mjs";
import { CORPUS, Scene, until } from "./scene.mjs";

let scene;
let chromium;

before(async () => {
  scene = await Scene.start();
  chromium = await browser();
  await scene.fill();
});

after(async () => {
  await chromium?.close();
  await scene?.stop();
});

async function visit(options, work) {
  const context = await chromium.newContext(options);
  const page = await context.newPage();
  const broken = [];
  // What the content policy refuses is told on the console, too.
  page.on("console", (message) => message.type() === "error" && !/status of 40[04]/.test(message.text()) && broken.push(message.text()));
  page.on("pageerror", (error) => broken.push(String(error)));
  try {
    await logIn(page, scene);
    await work(page);
    assert.deepEqual(broken, []);
  } finally {
    await context.close();
  }
}

const last = (job, action) => job.history.filter((row) => row.action === action).at(-1);

test("a wrong token stays outside and a right one gets to where one wanted to go", async () => {
  const context = await chromium.newContext();
  const page = await context.newPage();
  await page.goto(scene.base + "/parked");
  assert.equal(new URL(page.url()).pathname, "/login");
  await page.getByLabel("Token").fill("not-the-token");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("alert").getByText("This is not the token.").waitFor();
  await page.getByLabel("Token").fill("console-token-of-the-tests-0123456789");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForURL(scene.base + "/parked");
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("You are logged out.").waitFor();
  await page.goto(scene.base + "/");
  assert.equal(new URL(page.url()).pathname, "/login");
  await context.close();
});

test("a parked job is found, its story read, and it is replayed", async () => {
  await visit({}, async (page) => {
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByLabel("Key, reference, account").fill("payout:BAD-8");
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("link", { name: "payout:BAD-8" }).click();
    await page.getByText("bank refused the request (HTTP 422). This request had no effect.").waitFor();
    assert.match(await page.title(), /^Parked: payout:BAD-8 – Onceward$/);
    await page.getByText("under the same key: it was refused").waitFor();
    scene.provider.state.refuses = false;
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByText("It is back at work.").waitFor();
    // The page keeps itself up to date: nobody loads it again.
    await page.getByText("That is final.").waitFor({ timeout: 30_000 });
    scene.provider.state.refuses = true;
  });
  const job = await scene.settled("payout:BAD-8", "settled");
  assert.equal(job.intent.generation, 1);
  assert.match(last(job, "replay").actor, /^console:127\.0\.0\.1$/);
});

test("a doubt is ended by a person's answer", async () => {
  await visit({}, async (page) => {
    await page.getByRole("link", { name: "In doubt" }).first().click();
    await page.getByRole("link", { name: /Say what happened.*cash:LOST-1/ }).click();
    await page.getByText("the connection broke before a whole answer had come: whether the money moved is not known.").waitFor();
    await page.getByText("It happened", { exact: true }).click();
    await page.getByLabel("The provider’s reference of it").fill("till_77");
    await page.getByRole("button", { name: "It happened: close the job" }).click();
    await page.getByText("It is on record: it happened.").waitFor();
  });
  const job = scene.cli("show", "cash:LOST-1");
  assert.deepEqual([job.state, job.intent.reference], ["settled", "till_77"]);
  assert.match(last(job, "resolve").actor, /^console:/);
});

test("what might happen twice needs a word that somebody has looked", async () => {
  await visit({}, async (page) => {
    await page.goto(`${scene.base}/job/${scene.cli("show", "cash:LOST-2").id}`);
    await page.getByText("It did not happen", { exact: true }).click();
    await page.getByText("it happens twice").waitFor();
    await page.getByRole("button", { name: "It did not happen: send it anew" }).click();
    // The browser asks for the box, and nothing has left the page.
    assert.equal(scene.cli("show", "cash:LOST-2").state, "parked");
  });
});

test("a provider is paused with a reason and resumed", async () => {
  await visit({}, async (page) => {
    await page.getByRole("link", { name: "Providers" }).click();
    const bank = page.getByRole("region", { name: "bank", exact: true });
    await bank.getByText("Pause provider bank", { exact: true }).first().click();
    await bank.getByLabel("Why, for whoever finds it so").first().fill("maintenance until noon");
    await page.getByRole("button", { name: "Pause provider bank" }).click();
    await page.getByText("It is paused.").waitFor();
    await page.getByText("maintenance until noon").first().waitFor();
    assert.equal(scene.cli("stats").providers.bank.state, "paused");
    await page.goto(scene.base + "/");
    await page.getByRole("link", { name: "bank is paused" }).waitFor();
    await page.goto(scene.base + "/providers");
    await page.getByRole("button", { name: "Resume provider bank" }).click();
    await page.getByText("It goes on.").waitFor();
    assert.equal(scene.cli("stats").providers.bank.state, "ok");
    await page.goto(scene.base + "/audit?of=events");
    await page.getByText("maintenance until noon").waitFor();
  });
});

test("today is read on a phone in the dark", async () => {
  await visit({ viewport: { width: 390, height: 844 }, colorScheme: "dark" }, async (page) => {
    await page.getByRole("heading", { level: 1 }).getByText("need").waitFor();
    await page.getByRole("heading", { name: "What needs attention" }).waitFor();
    for (const [name, path] of await pages(scene)) {
      await page.goto(scene.base + path);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 0, `${name} is ${wide} px too wide`);
      const ground = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
      assert.equal(ground, "rgb(21, 23, 26)", name);
    }
  });
});

test("without JavaScript a person reads, replays some of a reason, and resolves", async () => {
  await visit({ javaScriptEnabled: false }, async (page) => {
    await page.goto(scene.base + "/parked");
    await page.getByRole("checkbox", { name: "Choose payout:BAD-7" }).check();
    const section = page.getByRole("region", { name: "The provider refused" });
    await section.getByRole("button", { name: "Replay the chosen" }).click();
    await page.getByRole("heading", { name: "Put 1 job back to work?" }).waitFor();
    await page.getByText("go out again under the same key: they were refused").waitFor();
    const before = scene.cli("show", "payout:BAD-7");
    assert.equal(before.state, "parked", "the page that asks changes nothing");
    await page.getByRole("button", { name: "Put 1 job back to work" }).click();
    await page.getByRole("heading", { name: "1 job is back at work." }).waitFor();
    await until(() => last(scene.cli("show", "payout:BAD-7"), "request").attempt > 1, "a second try");
    await page.goto(`${scene.base}/job/${scene.cli("show", "rent:GONE-1").id}`);
    await page.getByText("It was refused", { exact: true }).click();
    await page.getByLabel("Why it was refused").fill("the bank says so");
    await page.getByRole("button", { name: "It was refused: end the job" }).click();
    await page.getByText("It is on record: it was refused.").waitFor();
    assert.match(await page.locator("time").first().textContent(), / UTC$/);
  });
  assert.equal(scene.cli("show", "rent:GONE-1").state, "cancelled");
  // The group goes on without its head.
  await scene.settled("rent:R-2", "settled");
});

test("nothing that a key, a payload or a provider says is ever run", async () => {
  await visit({}, async (page) => {
    const dialogs = [];
    page.on("dialog", (dialog) => { dialogs.push(dialog.message()); dialog.dismiss(); });
    const evil = scene.cli("list", "--state", "parked", "--limit", "1", "--class", "rejected");
    assert.ok(evil);
    const paths = (await pages(scene)).map(([, path]) => path);
    for (const text of CORPUS) {
      const field = encodeURIComponent(text);
      for (const path of ["/jobs?q=", "/jobs?group=", "/jobs?kind=", "/jobs?state=", "/audit?key=", "/audit?actor=", "/groups?name=", "/job/", "/?done=", "/parked/replay?reason=", "/login?next="]) {
        paths.push(path + field);
      }
    }
    for (let id = 1; id <= 45; id += 1) paths.push(`/job/${id}`);
    for (const path of paths) {
      await page.goto(scene.base + path);
      for (const details of await page.locator("details").all()) await details.evaluate((d) => { d.open = true; });
      const found = await page.evaluate(() => ({
        hacked: window.hacked,
        strange: document.querySelectorAll("iframe, main script, main img, [onload], [onerror], a[href^='javascript']").length,
        inline: document.querySelectorAll("[style]").length,
      }));
      assert.deepEqual(found, { hacked: undefined, strange: 0, inline: 0 }, path);
      const text = await page.locator("body").innerText();
      for (const secret of ["4242424242424242", "4242 4242 4242 4242", "s3cr3t", "mail-token"]) {
        assert.ok(!text.includes(secret), `${path} shows ${secret}`);
      }
    }
    assert.deepEqual(dialogs, []);
    await page.goto(scene.base + "/jobs?q=" + encodeURIComponent("payout:BAD 0"));
    await page.getByText(CORPUS[0]).first().waitFor();
  });
});

async function axeFindsNothing(colorScheme) {
  const axe = readFileSync(AXE, "utf8");
  await visit({ colorScheme, viewport: { width: 1280, height: 900 } }, async (page) => {
    const all = [...(await pages(scene)), ["login", "/login"]];
    for (const [name, path] of all) {
      await page.goto(scene.base + path);
      for (const details of await page.locator("details").all()) await details.evaluate((d) => { d.open = true; });
      // Brought in by the debugger, which the content policy does not bind.
      const faults = await page.evaluate(async (source) => {
        (0, eval)(source);
        const found = await window.axe.run(document, { resultTypes: ["violations"] });
        return found.violations.filter((v) => ["serious", "critical"].includes(v.impact))
          .map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).slice(0, 3).join("; ")}`);
      }, axe);
      assert.deepEqual(faults, [], name);
    }
  });
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds no serious fault on any page in ${colorScheme} colours`, () => axeFindsNothing(colorScheme));
}

test("every page is walked with the keyboard, and focus is seen", async () => {
  await visit({}, async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await page.keyboard.press("Tab");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid");
  });
});

test("a refresh keeps what is open and where the focus is, and never disturbs a form", async () => {
  await visit({}, async (page) => {
    await page.goto(`${scene.base}/job/${scene.cli("show", "payout:LATE-1").id}`);
    await page.getByText("It happened", { exact: true }).click();
    const summary = page.locator("#settled > summary");
    assert.ok(await summary.evaluate((s) => document.activeElement === s));
    scene.cli("note", "payout:LATE-1", "a first remark");
    await page.getByText("Remark: a first remark").waitFor({ timeout: 30_000 });
    assert.ok(await page.locator("#settled").evaluate((d) => d.open));
    assert.ok(await summary.evaluate((s) => document.activeElement === s));
    await page.getByLabel("The provider’s reference of it").fill("half a refer");
    scene.cli("note", "payout:LATE-1", "a second remark");
    await page.waitForResponse(() => true, { timeout: 7_000 }).catch(() => {});
    assert.equal(await page.getByLabel("The provider’s reference of it").inputValue(), "half a refer");
  });
});

// The last ones: from here on the file is a restored one.
test("after a restore every page says so, a doubtful job takes two answers, and a provider is resumed", async () => {
  await scene.restore();
  await visit({}, async (page) => {
    for (const [name, path] of await pages(scene)) {
      await page.goto(scene.base + path);
      assert.equal(await page.getByRole("region", { name: "The file was restored" }).count(), 1, name);
    }
    const job = scene.cli("show", "cash:LOST-2");
    await page.goto(`${scene.base}/job/${job.id}`);
    for (const { wire_key } of job.intent.doubt.wire_keys) await page.locator("#look").getByText(wire_key).waitFor();
    assert.equal(await page.getByText("It was refused", { exact: true }).count(), 0);
    await page.getByText("It did not happen (all generations)", { exact: true }).click();
    await page.getByLabel("I have looked at the provider for each of these keys").check();
    await page.getByRole("button", { name: "It did not happen: send it anew" }).click();
    await page.getByText("A new request goes out under a new key.").waitFor();
    assert.equal(scene.cli("show", "cash:LOST-2").intent.doubt, undefined);
    await page.getByRole("link", { name: "Providers" }).first().click();
    const bank = page.getByRole("region", { name: "bank", exact: true });
    await bank.getByText("paused by the restore", { exact: true }).waitFor();
    await bank.getByRole("button", { name: "Resume provider bank" }).click();
    await page.getByText("It goes on.").waitFor();
    await page.getByRole("region", { name: "bank", exact: true }).getByText("open", { exact: true }).waitFor();
    scene.cli("restore", "--close");
    await page.goto(scene.base + "/");
    assert.equal(await page.getByRole("region", { name: "The file was restored" }).count(), 0);
  });
});

test("axe finds no serious fault on any page after a restore", async () => {
  await scene.restore();
  await axeFindsNothing("light");
  await axeFindsNothing("dark");
});
