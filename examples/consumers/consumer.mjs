// Prints what users deleted, and not what retention did: kafkajs.
//
//   npm install kafkajs kafkajs-snappy
//   node consumer.mjs kafka:9092 lapse.deletes.user
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'

const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy // kafkajs has no snappy of its own

const [brokers, topic] = process.argv.slice(2)
const consumer = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR }).consumer({ groupId: `${topic}-node` })
await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
await consumer.run({
  eachMessage: async ({ message }) => {
    const header = (name) => message.headers[name]?.toString()
    // A fence marks a place in the topic and is no event. Headers say what an event is; its value need not be parsed.
    if (header('lapse-op') !== 'fence') {
      console.log([header('lapse-cause'), header('lapse-op'), header('lapse-table'), message.key].join('\t'))
    }
    // An offset is committed after eachMessage, so a crash repeats an event. Its event_id says so: it never changes.
  },
})
