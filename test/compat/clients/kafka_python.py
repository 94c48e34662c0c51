"""kafka-python."""
import time
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, OffsetOutOfRangeError
import lines


def produce(q, records):
    codec = None if q["codec"] == "none" else q["codec"]
    p = KafkaProducer(bootstrap_servers=q["addr"], compression_type=codec, enable_idempotence=q["idempotent"], acks="all", linger_ms=5,
                      max_request_size=q["max"], max_block_ms=2500, request_timeout_ms=10000, delivery_timeout_ms=20000, allow_auto_create_topics=False)
    try:
        sent = [p.send(q["topic"], value=v, key=k, headers=h, partition=q["partition"], timestamp_ms=t) for k, v, h, t in records]
        p.flush(30)
        return [f.get(30).offset for f in sent]
    finally:
        p.close(5)


def consume(q):
    c = KafkaConsumer(bootstrap_servers=q["addr"], group_id=None, enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=100,
                      max_partition_fetch_bytes=2 << 20)
    try:
        tp = TopicPartition(q["topic"], q["partition"])
        c.assign([tp])
        offset = q["offset"]
        if q["timestamp"] is not None:
            offset = c.offsets_for_times({tp: q["timestamp"]})[tp].offset
        c.seek(tp, offset)
        out, end = [], time.time() + 30
        while len(out) < q["count"]:
            if time.time() > end:
                raise TimeoutError(f"{len(out)} records of {q['count']}")
            for got in c.poll(100, max_records=q["count"] - len(out)).values():
                out += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in got]
        return out
    finally:
        c.close()


def code(e):
    if isinstance(e, OffsetOutOfRangeError):
        return 1
    if isinstance(e, KafkaTimeoutError) and "update metadata" in str(e):
        return 3  # how the client tells UNKNOWN_TOPIC_OR_PARTITION
    return getattr(e, "errno", -1) if isinstance(e, KafkaError) else -1


lines.serve(produce, consume, code)
