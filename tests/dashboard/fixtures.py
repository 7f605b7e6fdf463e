"""The data of the mock admin server: a deployment of support and research agents after two busy hours."""

import json
import queue
import random
import threading
import time

POLICIES = ["loops", "budget", "rate_limit", "truncate", "arguments", "allow", "confirm", "compact", "redact"]
TOOLS = ["web_search", "read_file", "fetch_page", "send_mail", "run_sql", "create_ticket", "refund_payment", "list_orders",
         "lookup_customer", "translate", "render_chart", "read_more"]
MODELS = ["gpt-5.1", "gpt-5.1-mini", "claude-sonnet-5", "qwen3-coder"]
BLOCKS = [
    ("web_search", "loops", "This call with the same arguments was made 5 times and returned the same result. Use what you have."),
    ("fetch_page", "rate_limit", "fetch_page may be called 5 times in 60 s. Try again in 41 s."),
    ("run_sql", "arguments", "The argument \"limit\" must be a number."),
    ("web_search", "budget", "The budget of 50 tool calls for this turn is used up. Answer with what you know."),
]
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"


def now_ms():
    return int(time.time() * 1000)


def stamp(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03d}Z"


def spread(low):
    return {"p50": low, "p95": round(low * 3.1, 3), "p99": round(low * 5.4, 3)}


def caller(name, requests, cost, budgets):
    """A row of the callers."""
    return {"caller": name, "requests": requests, "input_tokens": requests * 2400, "output_tokens": requests * 310, "cost_usd": cost, "last_ms": now_ms() - 90_000,
            "budgets": [{"policy": policy, "name": of, "used": used, "limit": limit, "left": limit - used} for policy, of, used, limit in budgets]}


class World:
    """Everything that the mock shows, and how it changes."""

    def __init__(self, conversations):
        self.lock = threading.Lock()
        self.chance = random.Random(7)
        self.feeds = []
        self.blocked = 1312
        self.requests = 48210
        self.started = now_ms() - 7_412_000
        self.list = [self.made(number) for number in range(conversations)]
        self.waiting = []
        self.stops = {}
        self.history = self.past()
        self.minutes = [self.minute(back) for back in range(59, -1, -1)]

    def minute(self, back):
        wave = 1 + 0.5 * ((back % 17) / 17) + (1.2 if 18 < back < 25 else 0)
        requests = int(260 * wave + self.chance.randrange(70))
        return {"at_ms": (now_ms() // 60000 - back) * 60000, "requests": requests,
                "blocked": int(requests * (0.02 + (0.16 if 18 < back < 24 else 0)) + self.chance.randrange(6)),
                "removed": int(52000 * wave + self.chance.randrange(14000)), "added": int(3100 * wave + self.chance.randrange(900))}

    def made(self, number):
        acted = [POLICIES[(number * 7 + at * 3) % len(POLICIES)] for at in range(number % 4)]
        return {"id": f"support-{20480 - number:05d}" if number % 3 else f"research/eu west {9000 - number}",
                "model": MODELS[number % 4], "profile": ["support", "research", None][number % 3],
                "caller": f"{(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}", "requests": 3 + number % 23, "refused": 0, "turns": 1 + number % 5, "calls": number % 41,
                "blocked": (number % 7) if acted else 0, "tokens_removed": (number * 977) % 64000 if acted else 0,
                "tokens_added": (number % 9) * 40, "started_ms": now_ms() - number * 4100 - 600_800, "last_ms": now_ms() - number * 4100 - 800, "duration_ms": 600_000, "policies": sorted(set(acted)), "is_stopped": False}

    def past(self):
        rows = [("refund_payment", {"order": "A-10233", "amount_eur": 129.0}, "approve", "Mara Lind", None),
                ("send_mail", {"to": "all-customers", "subject": "Price change"}, "decline", "Jon Adeyemi", "Ask marketing first"),
                ("run_sql", {"statement": "DELETE FROM carts WHERE age > 90"}, "lapse", None, None),
                ("refund_payment", {"order": "A-10180", "amount_eur": 18.5}, "approve", "Mara Lind", "Damaged on arrival")]
        return [{"at_ms": now_ms() - 240_000 * (at + 1), "tool": tool, "arguments": given, "decision": decision, "approver": who, "reason": why}
                for at, (tool, given, decision, who, why) in enumerate(rows)]

    def overview(self):
        return {
            "version": "0.9.0", "mode": "enforce", "started_ms": self.started, "now_ms": now_ms(), "requests": self.requests, "turns": 9120,
            "tool_calls": {"allow": 30911, "block": self.blocked, "modify": 402, "answer": 187, "ask": 46}, "runaways_stopped": 61,
            "tokens": {"removed": 14_812_330, "added": 402_118, "reasked": 611_904, "net": 13_798_308},
            "money": {"net_usd_uncached": 34.4957, "net_usd_cached": 6.8991},
            "hold_out": {"share": 0.05, "note": "turns cost 31% less where toolrein governs (saved, 95% interval: 24% to 37%)."},
            "cost_of_guarding": {"overhead_p99_ms": 1.42, "added_tokens": 402_118}, "approvals_pending": len(self.waiting),
            "ungoverned": [{"endpoint": "embeddings", "requests": 8123}, {"endpoint": "messages", "requests": 41}],
            "models": [{"model": name, "requests": 21000 // (at + 1), "input_tokens": 61_000_000 // (at + 1), "output_tokens": 2_900_000 // (at + 1),
                        "cost_usd": None if at == 3 else round(98.2 / (at + 1) ** 2, 4)} for at, name in enumerate(MODELS)],
            "policies": [{"policy": name, "block": block, "removed": removed, "added": added, "reasked": reasked, "net": removed - added - reasked}
                         for name, block, removed, added, reasked in [
                             ("truncate", 0, 8_912_000, 61_000, 0), ("compact", 0, 4_710_330, 120_400, 0), ("loops", 611, 910_000, 88_200, 260_000),
                             ("budget", 204, 280_000, 96_118, 190_904), ("rate_limit", 322, 0, 21_400, 118_000), ("arguments", 175, 0, 15_000, 43_000)]],
            "minutes": self.minutes,
        }

    def tools(self):
        rows = [{"tool": name, "calls": 9000 // (at + 1), "blocked": (640, 12, 322, 3, 175, 0, 0, 9, 0, 0, 0, 0)[at], "results": 8800 // (at + 1),
                 "empty": 300 // (at + 2), "errors": 120 // (at + 1), "bytes": spread(1800 * (at % 5 + 1)), "tokens": spread(450 * (at % 5 + 1)),
                 "seconds": spread(0.21 * (at % 4 + 1)) if name != "read_more" else {"p50": None, "p95": None, "p99": None}} for at, name in enumerate(TOOLS)]
        return {"tools": rows, "start": {"system_tokens": spread(820), "definition_tokens": spread(2310)}}

    def limits(self):
        return {"limits": [{"policy": "loops", "tool": "web_search", "blocked": 520}, {"policy": "rate_limit", "tool": "fetch_page", "blocked": 322},
                           {"policy": "budget", "tool": "web_search", "blocked": 120}, {"policy": "arguments", "tool": "run_sql", "blocked": 175},
                           {"policy": "loops", "tool": "list_orders", "blocked": 91}, {"policy": "budget", "tool": "read_file", "blocked": 84}],
                "turns": [{"policy": "budget", "turns": 9120, "reached_50": 2011, "reached_80": 702, "reached_100": 204},
                          {"policy": "rate_limit", "turns": 6204, "reached_50": 1408, "reached_80": 610, "reached_100": 322},
                          {"policy": "turn_limits", "turns": 3100, "reached_50": 240, "reached_80": 61, "reached_100": 12}],
                "callers": [caller("acme <b>GmbH</b>", 812, 4.2071, [("budget", "day:spend_microusd", 4_207_100, 5_000_000), ("quota", "searches", 28, 30)]),
                            caller("王伟", 95, 0.4, [("budget", "day:spend_microusd", 400_000, 5_000_000)]), caller("none", 3, None, [])]}

    def health(self):
        return {"requests": self.requests, "errors": [{"status": 429, "requests": 118}, {"status": 500, "requests": 7}, {"status": 502, "requests": 3}],
                "overhead_ms": {"p50": 0.31, "p99": 1.42}, "streams": 87, "store": {"kind": "redis", "up": True, "errors": 2},
                "reloads": {"ok": 3, "refused": 1, "last_ms": now_ms() - 1_500_000}, "config": {"hash": "9f31c2aa", "path": "/etc/toolrein/proxy.toml"},
                "recorder": {"on": True, "dropped": 0},
                "refusals": [{"model": "gemma2:2b", "kind": "tools", "callers": "all", "cost": "requests are sent without their tools: the model can call nothing",
                              "met": 2, "avoided": 411, "first_ms": now_ms() - 3_000_000, "last_ms": now_ms() - 20_000}],
                "rules": {"tools": 14, "unfitted": [{"key": "policy.confirm.tools", "pattern": "refunds", "near": "refund"}]}}

    def config(self):
        return {"mode": "enforce", "upstream": {"url": "http://127.0.0.1:9000/v1", "idle_timeout": "5m"},
                "admin": {"token_env": "TOOLREIN_ADMIN_TOKEN"},
                "policy": {"budget": {"enabled": True, "tool_calls": 50, "notify_at": [0.5, 0.7, 0.9]}, "loops": {"notice": 3, "block": 5, "exempt": []},
                           "truncate": {"max_chars": 6000, "tools": {"read_file": {"max_chars": 12000}}}}}

    def difference(self):
        return {"path": "/etc/toolrein/proxy.toml", "changed": [{"key": "policy.budget.tool_calls", "in_force": 50, "in_file": 40},
                                                                 {"key": "policy.loops.exempt", "in_force": [], "in_file": ["poll_*"]}]}

    def conversations(self, query):
        wanted, text = query.get("policy"), query.get("query", "").lower()
        rows = [row for row in self.list if (not wanted or wanted in row["policies"]) and text in f"{row['id']} {row['model']} {row['profile']}".lower()]
        first, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
        return {"total": len(rows), "conversations": rows[first:first + limit]}

    def conversation(self, name):
        row = next((row for row in self.list if row["id"] == name), None)
        return row and row | {
            "items": items(), "budgets": [{"policy": "budget", "name": "tool_calls", "used": 50, "limit": 50},
                                          {"policy": "budget", "name": "billed_tokens", "used": 168_000, "limit": 200_000},
                                          {"policy": "rate_limit", "name": "web_search", "used": 2, "limit": 5}],
            "tool_calls": [{"at_ms": now_ms() - 60_000, "tool": "web_search", "verdict": "allow", "took_ms": 840, "outcome": "ok"},
                           {"at_ms": now_ms() - 12_000, "tool": "web_search", "verdict": "block", "took_ms": None, "outcome": None}],
            "decisions": [{"at_ms": now_ms() - 60_000, "tool": "web_search", "verdict": "allow", "policy": None, "used": None, "limit": None, "message": None},
                          {"at_ms": now_ms() - 41_000, "tool": "run_sql", "verdict": "modify", "policy": "arguments", "used": None, "limit": None,
                           "message": "\"limit\" was text and became a number."},
                          {"at_ms": now_ms() - 12_000, "tool": "web_search", "verdict": "block", "policy": "loops", "used": 5, "limit": 5, "message": BLOCKS[0][2]}]}

    def stop(self, what, name, is_stopped):
        if not is_stopped and (what, name) not in self.stops:
            return None
        if is_stopped:
            self.stops[what, name] = stamp(now_ms() + 86_400_000)
        else:
            del self.stops[what, name]
        for row in self.list:
            if what == "conversation" and row["id"] == name:
                row["is_stopped"] = is_stopped
        return {"what": what, "id": name, "stopped": is_stopped}

    def stopped(self):
        return [{"what": what, "id": name, "until": until} for (what, name), until in self.stops.items()]

    def ask(self, body):
        """A call begins to wait for a person."""
        token = f"{self.chance.getrandbits(128):032x}"
        since = now_ms()
        given = body.get("arguments", {"order": "A-10241", "amount_eur": 249.9, "reason": "Arrived broken; the customer sent photographs."})
        self.waiting.append({"token": token, "tool": body.get("tool", "refund_payment"), "arguments": given,
                             "readable": body.get("readable", "Refund 249.90 EUR for order A-10241"), "conversation": self.list[1]["id"],
                             "since": stamp(since), "expires": stamp(since + int(body.get("seconds", 240) * 1000))})
        self.publish("approval", {"tool": "refund_payment", "policy": "confirm", "message": "A call waits for a person.", "conversation": self.list[1]["id"]})
        return {"token": token}

    def decide(self, token, body):
        found = next((one for one in self.waiting if one["token"] == token), None)
        if not found or body.get("decision") not in ("approve", "decline"):
            return None
        self.waiting.remove(found)
        self.history.insert(0, {"at_ms": now_ms(), "tool": found["tool"], "arguments": found["arguments"], "decision": body["decision"],
                                "approver": body.get("approver"), "reason": body.get("reason")})
        self.publish("approval", {"tool": found["tool"], "policy": "confirm", "message": f"{body['decision']}d"})
        return {"token": token, "tool": found["tool"], "outcome": f"{body['decision']}d"}

    def block(self, body):
        """A call of a new conversation is blocked."""
        tool, policy, message = BLOCKS[self.blocked % len(BLOCKS)]
        self.blocked += 1
        self.requests += 1
        row = self.made(self.blocked) | {"id": body.get("conversation") or f"live-{self.blocked}", "last_ms": now_ms(), "blocked": 1, "policies": [policy]}
        with self.lock:
            self.list.insert(0, row)
            self.minutes[-1]["requests"] += 1
            self.minutes[-1]["blocked"] += 1
        self.publish("tool_call_start", {"tool": tool, "conversation": row["id"]})
        self.publish("tool_call_blocked", {"tool": tool, "policy": policy, "message": message, "conversation": row["id"]})
        return {"conversation": row["id"], "blocked": self.blocked}

    def many(self, body):
        """So many conversations are there."""
        self.list = [self.made(number) for number in range(body["count"])]
        return {"count": len(self.list)}

    def cut(self, _):
        """Every event stream ends, as when a proxy in between restarts."""
        with self.lock:
            feeds, self.feeds = self.feeds, []
        for feed in feeds:
            feed.put(None)
        return {"cut": len(feeds)}

    def listen(self):
        feed = queue.Queue(1000)
        feed.put(": hello\n\n")
        with self.lock:
            self.feeds.append(feed)
        return feed

    def publish(self, event, data):
        data = {"at_ms": now_ms(), "conversation": None, "model": MODELS[0], "tool": None, "policy": None, "message": None, "request_id": "r1"} | data
        with self.lock:
            for feed in self.feeds:
                if not feed.full():
                    feed.put(f"event: {event}\ndata: {json.dumps(data)}\n\n")


def items():
    blank = {"text": None, "tool": None, "arguments": None, "policy": None, "message": None, "is_error": False}
    result = "1. Parcel tracking (DE)\n2. Delivery times in the EU\n" + "A long page about parcels. " * 90
    return [blank | one for one in [
        {"kind": "system", "text": "You are the support agent of a shop. Be brief."},
        {"kind": "user", "text": f"Where is my parcel A-10241? {HOSTILE}"},
        {"kind": "call", "tool": "list_orders", "arguments": "{\"customer\": \"c-88\", \"since\": \"2026-11-01\"}"},
        {"kind": "result", "tool": "list_orders", "text": "[{\"id\": \"A-10241\", \"state\": \"sent\", \"carrier\": \"DHL\"}]"},
        {"kind": "call", "tool": "web_search", "arguments": "{\"query\": \"DHL parcel A-10241\"}"},
        {"kind": "result", "tool": "web_search", "text": result},
        {"kind": "call", "tool": "run_sql", "arguments": "{\"statement\": \"select * from parcels\", \"limit\": 10}"},
        {"kind": "result", "tool": "run_sql", "text": "ERROR: relation \"parcels\" does not exist", "is_error": True},
        {"kind": "notice", "policy": "budget", "text": "You have used 45 of 50 tool calls of this turn."},
        {"kind": "blocked", "tool": "web_search", "policy": "loops", "arguments": "{\"query\": \"DHL parcel A-10241\"}", "message": BLOCKS[0][2]},
        {"kind": "assistant", "text": "Your parcel A-10241 was handed to DHL and should arrive within two days."}]]


def explanation(name):
    """A page like that of `toolrein explain --html`: a style of its own, an attribute for style, its own policy."""
    safe = name.replace("&", "&amp;").replace("<", "&lt;")
    return ("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" "
            "content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>explained</title>"
            "<style>body{background:rgb(1,2,3);color:#fff}i{display:block;height:10px;background:#f00}</style></head>"
            f"<body><h1>{safe} explained</h1><a id=\"link\" href=\"#end\">end</a><i style=\"width:37px\"></i><script>document.title='owned'</script><p id=\"end\">The end</p></body></html>")
