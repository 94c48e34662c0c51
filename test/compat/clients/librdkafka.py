"""librdkafka by way of confluent-kafka."""
import time
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
import lines

COMMON = {"log_level": 0, "allow.auto.create.topics": False}


def produce(q, records):
    conf = {**COMMON, "bootstrap.servers": q["addr"], "compression.type": q["codec"], "enable.idempotence": q["idempotent"],
            "linger.ms": 5, "message.max.bytes": q["max"], "message.timeout.ms": 20000, "topic.metadata.propagation.max.ms": 1000,
             "queue.buffering.max.kbytes": 1 << 20}
    p = Producer(conf)
    offsets, failed = {}, []

    def done(i):
        def f(err, m):
            if err:
                failed.append(err)
            else:
                offsets[i] = m.offset()
        return f

    for i, (k, v, h, t) in enumerate(records):
        p.produce(q["topic"], value=v, key=k, headers=h, partition=q["partition"], on_delivery=done(i), **({"timestamp": t} if t else {}))
        p.poll(0)
    p.flush(30)
    if failed:
        raise KafkaException(failed[0])
    return [offsets[i] for i in range(len(records))]


def consume(q):
    c = Consumer({**COMMON, "bootstrap.servers": q["addr"], "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error",
                  "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 10})
    try:
        tp = TopicPartition(q["topic"], q["partition"], q["offset"])
        if q["timestamp"] is not None:
            tp = c.offsets_for_times([TopicPartition(q["topic"], q["partition"], q["timestamp"])], 20)[0]
            if tp.error:
                raise KafkaException(tp.error)
        c.assign([tp])
        out, end = [], time.time() + 30
        while len(out) < q["count"]:
            if time.time() > end:
                raise TimeoutError(f"{len(out)} records of {q['count']}")
            for m in c.consume(q["count"] - len(out), 0.1):
                if m.error():
                    raise KafkaException(m.error())
                out.append((m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers()))
        return out
    finally:
        c.close()


def code(e):
    if not isinstance(e, KafkaException):
        return -1
    c = e.args[0].code()
    if c == -140:  # _AUTO_OFFSET_RESET: the fetch's own error is in the text
        return 1 if "out of range" in str(e).lower() else -140
    return {-190: 3, -188: 3}.get(c, c)  # _UNKNOWN_PARTITION, _UNKNOWN_TOPIC: how the client tells UNKNOWN_TOPIC_OR_PARTITION


lines.serve(produce, consume, code)
