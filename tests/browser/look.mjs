// Takes pictures of every page, for somebody to look at: light and dark, phone and wide screen.
import { mkdirSync } from "node:fs";
import { browser, logIn, pages } from "./browser.mjs";
import { Scene } from "./scene.mjs";

const out = new URL("../../target/screenshots/", import.meta.url).pathname;
mkdirSync(out, { recursive: true });
const scene = await Scene.start();
const chromium = await browser();
async function look(prefix) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [390, 1280]) {
      const context = await chromium.newContext({ colorScheme, viewport: { width, height: width === 390 ? 844 : 900 } });
      const page = await context.newPage();
      await page.goto(scene.base + "/login");
      if (!prefix) await page.screenshot({ path: `${out}login-${width}-${colorScheme}.png` });
      await logIn(page, scene);
      for (const [name, path] of await pages(scene)) {
        await page.goto(scene.base + path);
        // A long list looks like its beginning.
        const height = await page.evaluate(() => Math.min(document.documentElement.scrollHeight, 2400));
        const clip = { x: 0, y: 0, width, height };
        await page.screenshot({ path: `${out}${prefix}${name}-${width}-${colorScheme}.png`, fullPage: true, clip });
      }
      await context.close();
    }
  }
}

try {
  await scene.fill();
  await look("");
  await scene.restore();
  await look("restored-");
} finally {
  await chromium.close();
  await scene.stop();
}
