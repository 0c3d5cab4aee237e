// look.js CHROMIUM FOLDER FILE...: looks at pages in a Chromium, wide, as on a phone and dark, with axe-core; prints them, and says what it found
// as JSON. The pictures are left in the folder.
const fs = require('fs')
const path = require('path')
const puppeteer = require('puppeteer-core')
const axe = fs.readFileSync(require.resolve('axe-core'), 'utf8')

const looks = [
  { name: 'wide', width: 1200, height: 1600, scheme: 'light' },
  { name: 'phone', width: 390, height: 844, scheme: 'light' },
  { name: 'dark', width: 1200, height: 1600, scheme: 'dark' },
]

async function main([chromium, folder, ...files]) {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox', '--disable-gpu'] })
  const found = []
  for (const file of files) {
    const base = path.join(folder, path.basename(file, '.html'))
    for (const look of looks) {
      const page = await browser.newPage()
      const asked = []
      page.on('request', (r) => asked.push(r.url()))
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: look.scheme }])
      await page.setViewport({ width: look.width, height: look.height })
      await page.goto('file://' + file)
      await page.evaluate(() => document.querySelectorAll('details').forEach((d) => { d.open = true }))
      await page.screenshot({ path: `${base}-${look.name}.png` })
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      await page.evaluate(axe)
      const result = await page.evaluate(() => axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }))
      found.push({
        file: path.basename(file), look: look.name, overflow, asked: asked.length, passes: result.passes.length,
        violations: result.violations.map((v) => ({ id: v.id, impact: v.impact, nodes: v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3) })),
      })
      await page.close()
    }
    for (const format of ['A4', 'Letter']) {
      const page = await browser.newPage()
      await page.goto('file://' + file)
      const pdf = await page.pdf({ path: `${base}-${format}.pdf`, format, preferCSSPageSize: false })
      found.push({ file: path.basename(file), look: format, overflow: 0, asked: 1, passes: pdf.length, violations: [] })
      await page.close()
    }
  }
  await browser.close()
  console.log(JSON.stringify(found))
}

main(process.argv.slice(2)).catch((e) => { console.error(e); process.exit(1) })
