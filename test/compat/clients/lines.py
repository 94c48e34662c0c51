"""The protocol between the Go tests and a Python client: one JSON object a line each way (driver_test.go says which)."""
import base64
import json
import sys


def unpack(text):
    return None if text is None else base64.b64decode(text)


def pack(data):
    return None if data is None else base64.b64encode(data).decode()


def serve(produce, consume, code):
    """Answers requests until standard input ends. code(exception) is Kafka's error code, or -1 if it is none of Kafka's."""
    for line in sys.stdin:
        q = json.loads(line)
        try:
            if q["op"] == "produce":
                records = [(unpack(r.get("k")), unpack(r.get("v")), [(n, unpack(v)) for n, v in r.get("h") or []], r.get("t")) for r in q["records"]]
                a = {"offsets": produce(q, records)}
            else:
                a = {"records": [{"o": o, "t": t, "k": pack(k), "v": pack(v), "h": [[n, pack(x)] for n, x in h or []]} for o, t, k, v, h in consume(q)]}
        except Exception as e:
            a = {"code": code(e), "error": f"{type(e).__name__}: {e}"}
        print(json.dumps(a), flush=True)
