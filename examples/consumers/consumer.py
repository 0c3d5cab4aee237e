"""Prints what users deleted, and not what retention did: confluent-kafka.

    pip install confluent-kafka
    python consumer.py kafka:9092 lapse.deletes.user
"""
import sys

from confluent_kafka import Consumer

brokers, topic = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": brokers,
    "group.id": topic + "-python",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
})
consumer.subscribe([topic])
while True:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        sys.exit(str(message.error()))
    headers = {name: value.decode() for name, value in message.headers() or []}
    # A fence marks a place in the topic and is no event. Headers say what an event is; its value need not be parsed.
    if headers.get("lapse-op") != "fence":
        print(headers["lapse-cause"], headers["lapse-op"], headers["lapse-table"], (message.key() or b"").decode(), sep="\t", flush=True)
    # What is read is committed after it is done, so a crash repeats an event. Its event_id says so: it never changes.
    consumer.commit(message, asynchronous=False)
