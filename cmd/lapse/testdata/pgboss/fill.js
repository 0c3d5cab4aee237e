// Fills pg-boss' tables through its own interface: two queues, half of the jobs of each completed, and some of those archived.
// Usage: node fill.js URL JOBS
const PgBoss = require('pg-boss')

async function main (url, jobs) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false })
  boss.on('error', error => { throw error })
  await boss.start()
  for (const queue of ['mails', 'reports']) {
    await boss.createQueue(queue)
    await boss.insert(Array.from({ length: jobs }, () => ({ name: queue, data: { to: 'nobody' } })))
    const taken = await boss.fetch(queue, { batchSize: jobs / 2 })
    await boss.complete(queue, taken.map(job => job.id))
  }
  await boss.stop({ graceful: false })
}

main(process.argv[2], Number(process.argv[3])).catch(error => { console.error(error); process.exit(1) })
